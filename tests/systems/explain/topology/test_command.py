"""`cordee topology` on runs and lists of nodes, with every source of a network, and its picture."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cordee.core.draw.images import APART
from cordee.core.findings import Finding
from cordee.faces.cli import main
from cordee.runs.journal import JournalWriter
from support.made.runs import MadeRun, write_run

RECORDED = Path(__file__).parent / "recorded"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run of 16 nodes with 4 GPUs each: tp 4, dp 2, pp 8."""
    return write_run(tmp_path_factory.mktemp("runs"), MadeRun(64, 30, node_name="n{}")).root


@pytest.fixture
def network(tmp_path) -> Path:
    file = tmp_path / "topology.conf"
    lines = [f"SwitchName=s{at} Nodes=n[{at * 6}-{at * 6 + 5}]" for at in range(4)]
    file.write_text("\n".join([*lines, "SwitchName=g0 Switches=s[0-1]", "SwitchName=g1 Switches=s[2-3]"]))
    return file


@pytest.fixture
def profiles(tmp_path, monkeypatch) -> Path:
    """The folder of cluster profiles; nothing else is asked."""
    folder = tmp_path / "clusters"
    folder.mkdir()
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(folder))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CORDEE_ON", raising=False)
    return folder


@pytest.fixture
def run(capsys) -> Callable[..., str]:
    """Run `cordee topology` with arguments and return all that it printed."""

    def go(*argv: object, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["topology", *map(str, argv)])
        said = capsys.readouterr()
        assert ended.value.code == code, said
        return said.out + said.err

    return go


@pytest.fixture
def document(run) -> Callable[..., dict[str, Any]]:
    """Return what it prints with `--json`."""
    return lambda *argv: json.loads(run(*argv, "--json"))


def drawn(file: Path) -> ElementTree.Element:
    return ElementTree.fromstring(file.read_text())


def fills(file: Path) -> Counter[str]:
    """Return by colour how many cells are painted with it in full, the legend's left out: a merged stretch counts by its height."""
    found: Counter[str] = Counter()
    for group in drawn(file).iter(f"{SVG}g"):
        for rect in group.iter(f"{SVG}rect"):
            if "fill-opacity" not in rect.attrib:
                found[rect.attrib["fill"]] += 1
    return found


def test_a_run_is_placed_by_its_journal_and_its_mesh_by_its_ranks(made, network, document):
    said = document(made, "--topology", network)
    assert (said["nodes"], said["ranks"], said["switches_spanned"], said["least_possible"]) == (16, 64, 3, 3)
    assert said["mesh"] == {"tp": 4, "dp": 2, "pp": 8}
    assert said["edges"]["tp"]["node"] == 0
    assert said["edges"]["dp"] == {"pairs": 32, "unknown": 0, "node": 1, "switch": 0, "group": 0}
    assert said["edges"]["pp"]["switch"] == pytest.approx(16 / 56, abs=1e-6)  # stages 2 to 3 and 5 to 6
    assert said["placed"][6] == {"node": "n6", "switch": "s1", "group": "g0", "ranks": [24, 25, 26, 27]}
    assert said["missing"] == []


def test_what_is_printed_says_the_same(made, network, run):
    text = run(made, "--topology", network)
    assert "16 nodes, 64 ranks (dp 2 x pp 8 x tp 4)" in text
    assert "spans 3 switches of 4, 3 are the least possible" in text
    assert re.search(r"pp +56 +100.0 % +28.6 % +14.3 %", text)


def test_a_filter_leaves_the_figures_of_what_it_names(made, network, document):
    said = document(made, "--topology", network, "--filter", "dp=0,pp=6-7")
    assert (said["nodes"], said["ranks"], said["switches_spanned"], said["filter"]) == (2, 8, 1, "dp=0,pp=6-7")


def test_experts_are_beside_the_other_dimensions_and_can_be_filtered_by(tmp_path, network, document):
    folder = write_run(tmp_path / "runs", MadeRun(64 * 4, 20, node_name="n{}")).root  # dp 8, of which ep 8
    said = document(folder, "--topology", network, "--filter", "ep=0,pp=0-1")
    assert (said["ranks"], set(said["mesh"])) == (8, {"tp", "dp", "pp"})


def test_the_picture_has_a_cell_for_every_rank_in_the_box_of_its_switch(made, network, tmp_path, run):
    run(made, "--topology", network, "--svg", tmp_path / "place.svg", "--colour", "tp")
    assert fills(tmp_path / "place.svg") == {f"#{colour}": 16 for colour in APART[:4]}
    texts = [element.text for element in drawn(tmp_path / "place.svg").iter(f"{SVG}text")]
    assert {"g0", "g1", "s0 6 of 6", "s2 4 of 6", "n15", "tp"} <= set(texts)


def test_what_a_filter_leaves_out_is_faint(made, network, tmp_path, run):
    run(made, "--topology", network, "--svg", tmp_path / "a.svg", "--colour", "tp", "--filter", "tp=1,pp=0-1")
    assert fills(tmp_path / "a.svg") == {f"#{APART[1]}": 4}


def test_a_metric_of_gpus_colours_ranks_and_one_of_nodes_their_nodes(made, network, tmp_path, run):
    for metric in ("gpu_power_watts", "memory_used_bytes", "loss"):
        run(made, "--topology", network, "--svg", tmp_path / "a.svg", "--colour", metric)
        tips = [title.text for title in drawn(tmp_path / "a.svg").iter(f"{SVG}title")]
        assert any(tip.startswith("n0: ranks 0-3: " + metric) for tip in tips), metric


def test_a_finding_about_ranks_colours_them(made, network, tmp_path, run, document):
    copy = tmp_path / made.name
    shutil.copytree(made, copy)
    with_finding = Finding("slow", "warn", "straggler-compute", evidence={"ranks": [5, 6]})
    writer = JournalWriter(copy / "journal", "supervisor-9", 9)
    writer.append("finding", finding=with_finding.document())
    run(copy, "--topology", network, "--svg", tmp_path / "a.svg", "--colour", "state")
    tips = [title.text for title in drawn(tmp_path / "a.svg").iter(f"{SVG}title")]
    assert [tip for tip in tips if "straggler-compute" in tip] == [
        "n1: ranks 4-7: nothing was found; straggler-compute"
    ]


def test_each_form_of_a_network_is_known_by_what_is_in_it(tmp_path, document):
    names = {
        "conf": "SwitchName=a Nodes=n[1-6]\n",
        "shown": "SwitchName=a Level=0 LinkSpeed=1 Nodes=n[1-6]\n",
        "block": "BlockName=a BlockIndex=0 Nodes=n[1-6] BlockSize=4\n",
        "yaml": "# a comment\n- topology: t\n  tree:\n    switches:\n    - switch: a\n      nodes: n[1-6]\n",
        "fabric": (RECORDED / "ibnetdiscover.txt").read_text(),
    }
    for name, text in names.items():
        file = tmp_path / name
        file.write_text(text)
        said = document("--nodes", "n[1-6]", "--topology", file)
        assert said["switches_spanned"] == (3 if name == "fabric" else 1), name


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\x00\x01\x02", "holds a NUL character"),
        (b"nothing of the kind\n", "neither a switch nor a block"),
        (b"- a: [\n", "is not valid YAML"),
        (b"\xff\xfe\xfd", "is not UTF-16"),
    ],
)
def test_a_file_that_describes_no_network_is_refused_by_its_name(tmp_path, content, words, run):
    file = tmp_path / "net"
    file.write_bytes(content)
    output = run("--nodes", "n1", "--topology", file, code=2)
    assert words in output
    assert str(file) in output
    assert "no such file" in run("--nodes", "n1", "--topology", tmp_path / "not-there", code=2)


def test_switches_of_a_profile_are_used_and_its_groups_make_a_dragonfly(profiles, document):
    (profiles / "site.toml").write_text(
        'name = "site"\n[switches]\ns0 = "n[0-1]"\ns1 = "n[2-3]"\ns2 = "n[4-5]"\n[network.groups]\ng0 = "s[0-1]"\ng1 = "s2"\n'
    )
    said = document("--nodes", "n[0-5]", "--on", "site")
    assert (said["network"]["kind"], said["hops"]["most"]) == ("dragonfly", 4)
    assert [level["level"] for level in said["levels"]] == ["switch", "group"]


def test_a_profile_may_name_a_file(profiles, network, document):
    (profiles / "site.toml").write_text(f'name = "site"\n[network]\nfile = "{network}"\n')
    assert document("--nodes", "n[0-5]", "--on", "site")["switches_spanned"] == 1


def test_where_the_network_is_not_known_the_lines_to_add_are_named(profiles, made, tmp_path, document):
    said = document(made, "--svg", tmp_path / "a.svg")
    assert said["switches_spanned"] is None
    (missing,) = said["missing"]
    assert missing["where"] == str(profiles / "local.toml")
    assert '[switches]\nleaf1 = "n[1-16]"' in missing["line"]
    assert "how the nodes are connected is not known: 16" in (tmp_path / "a.svg").read_text()


def test_what_is_added_as_it_was_named_is_found(profiles, made, document):
    (missing,) = document(made)["missing"]
    Path(missing["where"]).write_text(missing["line"].partition("# or:")[2])
    said = document(made)
    assert (said["switches_spanned"], said["unplaced"]) == (1, ["n0"])
    assert said["missing"][0]["line"] == 'NAME = "n0"'


def test_ranks_without_a_place_are_missed_with_the_call_that_tells_it(network, tmp_path, document):
    folder = write_run(tmp_path, MadeRun(8, 20, node_name="n{}", placed=False)).root
    (missing,) = document(folder, "--topology", network)["missing"]
    assert missing["line"].startswith("cordee.layout(tp=")
    said = document(folder, "--topology", network, "--mesh", "tp=4,dp=2")
    assert (said["mesh"], said["missing"]) == ({"tp": 4, "dp": 2}, [])


def test_faults_of_the_network_are_said(tmp_path, run):
    file = tmp_path / "net"
    file.write_text("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[2-3]\n")
    assert "warn: n2 is below a, b: a counts" in run("--nodes", "n[1-3]", "--topology", file)


def test_what_is_no_run_and_no_job_is_refused(profiles, made, network, run):
    assert "no run answers to this name" in run("nobody", "--runs", made.parent, code=2)
    assert "not found" in run("4711", "--runs", made.parent, code=5)
    assert "nothing of this job is known by gpu_power_wats" in run(
        made, "--topology", network, "--svg", "x.svg", "--colour", "gpu_power_wats", code=2
    )
    assert "--svg" in run(made, "--colour", "tp", code=2)


@pytest.mark.parametrize("nodes", ["n[9-1]", "n[1-", "n[1-9999999]", ","])
def test_a_list_of_nodes_that_is_none_is_a_wrong_command(network, run, nodes):
    assert "--nodes" in run("--nodes", nodes, "--topology", network, code=2)


def test_its_help_has_an_example(run):
    assert "cordee topology last" in run("--help")
