"""`#SBATCH` lines are read as sbatch reads them."""

from __future__ import annotations

import pytest

from cordee.backends.job_scripts.options import SBATCH_OPTIONS, last_values, parse_options
from cordee.backends.job_scripts.render import duration_text, size_text
from cordee.backends.slurm.sbatch.directives import read_directives, split_words
from cordee.backends.slurm.sbatch.values import (
    read_gpus,
    read_gres,
    read_memory,
    read_nodes,
    read_signal,
    read_time,
)


def options(text: str) -> dict[str, str | None]:
    return {name: one.value for name, one in last_values(read_directives(text).given).items()}


@pytest.mark.parametrize(
    "lines",
    [
        "#SBATCH -N 4",
        "#SBATCH -N4",
        "#SBATCH --nodes=4 -p=x",
        "#SBATCH --nodes 2-4   # a comment --qos=no",
        "##SBATCH --qos=no",
        "# SBATCH --qos=no",
        " #SBATCH --qos=no",
        "#SBATCH -N 1\n#SBATCH --nodes=2\n#SBATCH -N3",
        "#SBATCH -N 1\n\n   \n# text\n#SBATCH -A a",
        "#SBATCH -N 1\ntrue\n#SBATCH -A late",
        "#SBATCH\t-N\t2\t-Hk",
        "#SBATCH--nodes=3",
        '#SBATCH -J "a # b" -A \'c d\' -q e"f g"h',
        "#SBATCH -J a\\'b --const=[a|b]*2",
        "#SBATCH --part gpu --tasks=3 --exclude n[1-3]",
        "#SBATCH --gpus-per-node a100:2 --gpus=4 --cpus-per-gpu 3",
        "#SBATCH --exclusive --nice=7",
        "#SBATCH -c8 --mem 3G --ntasks-per-n 2",
    ],
)
def test_spellings_mean_what_they_mean_to_sbatch(lines, as_sbatch_reads):
    text = f"#!/bin/bash\n{lines}\n"
    theirs, ours = as_sbatch_reads(text), options(text)
    assert set(ours) == set(theirs)
    assert all(value in (None, theirs[name]) for name, value in ours.items())


@pytest.mark.parametrize(
    "time", ["90", "5:30", "1:02:03", "1-2", "1-2:03", "2-03:04:05", "0-00:04:00", "UNLIMITED", "120:00", "0:45:00"]
)
def test_times_are_as_long_as_for_sbatch(time, as_sbatch_reads):
    theirs = as_sbatch_reads(f"#!/bin/sh\n#SBATCH -t {time}\n")["time"]
    seconds = read_time(time)
    rounded = None if seconds is None else -(-seconds // 60) * 60  # Slurm counts minutes
    assert rounded == read_time(theirs)


def test_a_script_of_a_centre_gives_the_options_that_sbatch_sees(script, as_sbatch_reads):
    known_to_plugins = ("--image",)
    lines = script.read_text().split("#SBATCH hetjob")[0].splitlines()
    text = "\n".join(line for line in lines if not any(option in line for option in known_to_plugins)) + "\n"
    theirs, ours = as_sbatch_reads(text.replace("tmpfs:20G", "tmpfs:20")), options(text)
    assert set(ours) - {"mail-type"} == set(theirs) - {"mail-type"}
    for name in ("account", "constraint", "qos", "nodes", "partition", "job-name", "ntasks", "ntasks-per-node"):
        assert ours.get(name) == theirs.get(name)


def test_lines_that_sbatch_passes_over_are_listed_with_the_reason():
    text = "#!/bin/sh\n#SBATCH -N 2 --image=x stray\n#SBATCH hetjob\n#SBATCH -N 3\ntrue\n#SBATCH -A late\n"
    found = read_directives(text)
    assert [(one.line, one.shown) for one in found.left] == [
        (2, "--image=x"),
        (2, "stray"),
        (3, "#SBATCH hetjob"),
        (4, "#SBATCH -N 3"),
        (6, "#SBATCH -A late"),
    ]
    assert "plug-in" in found.left[0].why
    assert "first part" in found.left[3].why
    assert options(text) == {"nodes": "2"}


def test_words_are_split_as_sbatch_splits_them():
    assert split_words(""" -J "a b"c 'd"e' # f""") == ["-J", "a bc", 'd"e']
    assert split_words("''") == [""]


def test_a_name_that_is_not_unique_is_unknown():
    given, _ = parse_options(["--nod=3", "-Z", "--mem-p=1"], SBATCH_OPTIONS, 1)
    assert [one.option for one in given] == [None, None, None]


@pytest.mark.parametrize(
    ("reader", "text", "value"),
    [
        (read_nodes, "4", (4, 4)),
        (read_nodes, "2-4", (2, 4)),
        (read_nodes, "4-2", None),
        (read_nodes, "1,3", None),
        (read_nodes, "0", None),
        (read_memory, "64G", 64 << 30),
        (read_memory, "64GB", 64 << 30),
        (read_memory, "1500", 1500 << 20),
        (read_memory, "0", None),
        (read_memory, "all", None),
        (read_gpus, "4", (4, None)),
        (read_gpus, "a100:4", (4, "a100")),
        (read_gpus, "a100:4,h100:2", None),
        (read_gres, "gpu", ((1, None), [])),
        (read_gres, "gpu:a100", ((1, "a100"), [])),
        (read_gres, "gpu:a100:4(S:0-1),nvme:1", ((4, "a100"), ["nvme:1"])),
        (read_gres, "nvme:1", (None, ["nvme:1"])),
        (read_signal, "USR1", ("USR1", 60, False)),
        (read_signal, "B:SIGUSR1@120", ("USR1", 120, True)),
        (read_signal, "R:10@30", ("USR1", 30, False)),
        (read_signal, "KILL@30", None),
        (read_signal, "999@30", None),
        (read_time, "0", None),
        (read_time, "soon", None),
    ],
)
def test_a_value_is_read_or_known_to_be_unreadable(reader, text, value):
    assert reader(text) == value


def test_what_is_written_is_exact():
    assert [duration_text(seconds) for seconds in (90, 3600, 93784, 0)] == ["1min30s", "1h", "1d2h3min4s", "0s"]
    assert [size_text(size) for size in (64 << 30, 1500 << 20, 1 << 40, 3000)] == ["64GiB", "1500MiB", "1TiB", "3000"]
