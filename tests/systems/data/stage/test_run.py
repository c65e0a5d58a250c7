"""A run that brings its data to its nodes before its ranks start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("real")

TRAIN = """
import os, pathlib
place = pathlib.Path(os.environ["CORDEE_DATA_CORPUS"])
seen = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
pathlib.Path("seen-" + os.environ["RANK"]).write_text(f"{place} {seen}")
"""


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "job"
    (folder / "corpus/a").mkdir(parents=True)
    for number in range(3):
        (folder / "corpus/a" / f"{number}.bin").write_bytes(os.urandom(4_000_000))
    (folder / "train.py").write_text(TRAIN)
    (tmp_path / "disk").mkdir()
    return folder


def run(job: Path, more: str = "") -> tuple[dict, subprocess.CompletedProcess]:
    (job / "cordee.toml").write_text(
        'name = "staging"\nrun = "python train.py"\n[need]\nnodes = 2\ngpus_per_node = 0\nranks_per_node = 1\n'
        f'[data.corpus]\nfrom = "corpus"\nto = "node"\n{more}'
    )
    env = {**os.environ, "SLURM_TMPDIR": str(job.parent / "disk")}
    argv = [str(Path(sys.executable).with_name("cordee")), "run", "--json"]
    done = subprocess.run(argv, cwd=job, env=env, capture_output=True, text=True, timeout=300, check=False)
    return json.loads(done.stdout), done


def events(document: dict, name: str) -> list[dict]:
    lines = [
        json.loads(line)
        for path in Path(document["folder"], "journal").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return [line for line in lines if line["event"] == name]


@pytest.mark.gate
def test_ranks_find_what_was_read_once_for_all_nodes(job):
    document, done = run(job)
    assert document["state"] == "finished", done.stderr
    staged = document["staged"]
    assert sorted(one["node"] for one in staged) == ["local-0", "local-1"]
    assert sum(one["source_bytes"] for one in staged) == 12_000_000
    (path,) = {one["path"] for one in staged}
    assert path.startswith(f"{job.parent}/disk/")
    assert [(job / f"seen-{rank}").read_text() for rank in (0, 1)] == [f"{path} 12000000"] * 2
    (ended,) = events(document, "staging_ended")
    assert ended["source_bytes"] == 12_000_000
    again, _ = run(job)
    assert sum(one["source_bytes"] for one in again["staged"]) == 0
    report = (Path(again["folder"]) / "report" / "index.html").read_text()
    assert "on the disk of 2 nodes; it was there already" in report
    assert "bringing data to the nodes" in report


def test_what_fits_nowhere_ends_the_run_with_the_nodes_name_and_what_to_do(job):
    os.truncate(job / "corpus/a/0.bin", 10 << 40)
    document, _ = run(job)
    assert (document["state"], document["exit_code"], document["reason"]) == ("failed", 5, "staging")
    assert "cannot stage the data set corpus: it cannot be staged: not the node's disk" in document["text"]
    assert "local-" in document["text"]
    assert "make room, or stage less" in document["text"]
    assert not list(job.glob("seen-*"))


def test_what_is_poisoned_is_refused_before_a_rank_can_load_it_and_judged_once(job, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (job / "corpus").rename(tmp_path / "corpus")  # outside of what the run's snapshot of the code carries
    (job / "corpus").symlink_to(tmp_path / "corpus")
    for number in range(300):  # more than the gate looks at before submission, and before it in their order
        (job / "corpus" / "a" / f"0-{number}.txt").write_text("x")
    (job / "corpus" / "a" / "z.bin").write_bytes(b"cposix\nsystem\n(S'touch canary'\ntR.")
    for _ in range(2):
        document, _ = run(job)
        assert (document["state"], document["reason"]) == ("failed", "staging"), document
        assert "corpus/a/z.bin: loading it looks up posix.system" in document["text"]
        assert "cordee scan --explain model-pickle-call" in document["text"]
        assert not list(job.glob("seen-*"))
        assert len(list((tmp_path / "cache" / "cordee" / "scan" / "staged").iterdir())) == 1
    document, done = run(job, '[scan]\npolicy = "warn"\n')
    assert document["state"] == "finished", done.stderr
    (finding,) = (one for one in document["findings"] if one["rule"] == "scan-model-pickle-call")
    assert (finding["severity"], "corpus/a/z.bin" in finding["text"]) == ("warn", True)
    assert not (job / "canary").exists()


def test_it_is_prepared_once_on_a_node_and_a_command_that_fails_ends_the_run(job, tmp_path):
    (job / "prepare.py").write_text(
        "import os, pathlib, sys\n"
        "open(os.path.join(os.path.dirname(sys.argv[0]), 'times'), 'a').write('x')\n"
        "for path in pathlib.Path('a').iterdir(): os.truncate(path, 1000)\n"
        "print('not an answer')\n"
    )
    document, done = run(job, f'prepare = "{sys.executable} {job}/prepare.py"\n')
    assert document["state"] == "finished", done.stderr
    place, seen = (job / "seen-0").read_text().split()
    assert (seen, (job / "times").read_text()) == ("3000", "x")
    assert sorted(path.name for path in Path(place).parent.iterdir()) == ["corpus"]
    assert {path.stat().st_size for path in (job / "corpus/a").iterdir()} == {4_000_000}
    document, _ = run(job, 'prepare = "false"\n')
    assert (document["state"], document["reason"]) == ("failed", "staging")
    assert "the command that prepares it ended with code 1: false" in document["text"]


def test_each_node_gets_its_part_and_the_source_is_read_once_in_all(job):
    document, done = run(job, 'part = "node"\n')
    assert document["state"] == "finished", done.stderr
    found = {one["node"]: one for one in document["staged"]}
    assert [found[node]["source_bytes"] for node in ("local-0", "local-1")] == [8_000_000, 4_000_000]
    for rank, node in enumerate(("local-0", "local-1")):
        assert (job / f"seen-{rank}").read_text() == f"{found[node]['path']} {found[node]['source_bytes']}"
    names = [sorted(path.name for path in Path(found[node]["path"]).rglob("*.bin")) for node in sorted(found)]
    assert names == [["0.bin", "2.bin"], ["1.bin"]]
