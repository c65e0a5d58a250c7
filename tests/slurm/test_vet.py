"""`srun cordee vet` in sbatch scripts on a real Slurm: exit codes, files, dead and hung tasks, and the next srun."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "vetting-in-a-script.md"
OPTIONS = "--kill-on-bad-exit=0 --no-kill --wait=30"
PROTOCOL = """
name: p
deadline: 20s
evals:
- {name: memory, type: host.memory, min_bytes: 1MiB}
- {name: own, type: command, command: ./own}
"""


@pytest.fixture
def script(slurm, tmp_path, monkeypatch):
    """Run a batch script on 4 nodes and return what it printed: `script(body, own)`; `own` is the user's own check."""
    folder = tmp_path / "job"
    folder.mkdir()
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, command in (("cordee", "-m cordee.faces.cli"), ("python", "")):
        (bin_ / name).write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")

    def run(body: str, own: str = "true", **files: str) -> str:
        for name, text in {"own": f"#!/bin/sh\n{own}\n", "protocol.yaml": PROTOCOL, **files}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        (folder / "job.sh").write_text(body if body.startswith("#!") else f"#!/bin/bash\n{body}\n")
        command = ["sbatch", "--parsable", "--nodes=4", "--ntasks-per-node=1", "--output=out", "job.sh"]
        job = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
        slurm.wait_ended(job, 150)
        return (folder / "out").read_text()

    run.folder = folder  # type: ignore[attr-defined]
    return run


def document(script) -> dict:
    found: dict = json.loads((script.folder / "vet.json").read_text())
    return found


def left(script) -> list[str]:
    return [path.name for path in script.folder.iterdir() if path.name.startswith(".cordee")]


def test_four_healthy_nodes_go_on(script):
    said = script("srun cordee vet protocol.yaml; echo code $?")
    assert "code 0" in said
    assert said.count("p: OK - ") == 1
    found = document(script)
    assert ([node["node"] for node in found["nodes"]], found["exclude"]) == (["n1", "n2", "n3", "n4"], [])
    assert found["job"].isdigit()
    assert left(script) == []


@pytest.mark.gate
def test_a_bad_node_is_left_out_by_the_next_srun(script):
    body = """
srun cordee vet protocol.yaml --json > said.json
echo code $?
source ./vet.env
srun --nodes=3 --ntasks=3 --exclude="$CORDEE_VET_EXCLUDE" bash -c 'echo list $SLURMD_NODENAME'
srun --nodes=3 --ntasks=3 --exclude=./exclude.txt bash -c 'echo file $SLURMD_NODENAME'
srun --ntasks=$CORDEE_VET_HEALTHY --nodelist=./nodes.txt bash -c 'echo only $SLURMD_NODENAME'
"""
    said = script(body, 'test "$SLURMD_NODENAME" != n3')
    assert "code 3" in said
    for word in ("list", "file", "only"):
        assert sorted(re.findall(rf"{word} (\w+)", said)) == ["n1", "n2", "n4"], said
    assert json.loads((script.folder / "said.json").read_text()) == document(script)


def test_nobody_left_out_is_no_fault_for_the_next_srun(script):
    body = """
srun cordee vet protocol.yaml > said; source ./vet.env
srun --nodes=4 --ntasks=4 --exclude="$CORDEE_VET_EXCLUDE" bash -c 'echo on $SLURMD_NODENAME'
"""
    assert script(body).count("on n") == 4


def test_too_few_fit_nodes_end_in_four(script):
    said = script("srun cordee vet protocol.yaml --nodes 4; echo code $?", 'test "$SLURMD_NODENAME" != n3')
    assert "code 4" in said
    assert document(script)["verdict"] == "abort"


def test_a_wrong_protocol_ends_in_two_and_says_it_once(script):
    wrong = PROTOCOL.replace("host.memory", "host.memry")
    said = script("srun cordee vet protocol.yaml; echo code $?", **{"protocol.yaml": wrong})
    assert "code 2" in said
    assert said.count("protocol.yaml:5") == 1
    assert left(script) == []


def test_a_dead_task_is_named_where_slurm_is_told_to_let_the_others_live(script):
    body = f"srun {OPTIONS} bash -c './vet'; echo code $?; source ./vet.env; echo verdict $CORDEE_VET_VERDICT $CORDEE_VET_EXCLUDE"
    vet = '#!/bin/bash\n[ "$SLURMD_NODENAME" = n2 ] && kill -9 $$\nexec cordee vet protocol.yaml --deadline 12s\n'
    said = script(body, vet=vet)
    assert "code 137" in said
    assert "verdict exclude n2" in said
    assert left(script) == []


def test_a_task_killed_in_its_midst_is_named_too(script):
    own = '[ "$SLURMD_NODENAME" != n4 ] || kill -9 $(ps -o ppid= -p $(ps -o ppid= -p $PPID))'
    said = script(f"srun {OPTIONS} cordee vet protocol.yaml; echo code $?", own)
    assert "code 137" in said
    assert document(script)["exclude"] == ["n4"]


@pytest.mark.campaign
def test_a_hung_task_is_named_and_slurm_ends_it(script):
    body = f"srun {OPTIONS.replace('30', '5')} bash -c './vet'; echo code $?; source ./vet.env; echo verdict $CORDEE_VET_VERDICT $CORDEE_VET_EXCLUDE"
    vet = '#!/bin/bash\n[ "$SLURMD_NODENAME" = n2 ] && kill -STOP $$\nexec cordee vet protocol.yaml --deadline 12s\n'
    said = script(body, vet=vet)
    assert "code 137" in said
    assert "verdict exclude n2" in said


def test_the_next_node_conducts_when_the_first_task_is_dead(script):
    vet = '#!/bin/bash\n[ "$SLURMD_NODENAME" = n1 ] && kill -9 $$\nexec cordee vet protocol.yaml --deadline 16s\n'
    said = script(f"srun {OPTIONS} bash -c './vet'; echo code $?", vet=vet)
    assert "code 137" in said
    assert document(script)["exclude"] == ["n1"]


def test_several_tasks_of_a_node_are_one_node(script):
    said = script("srun --ntasks=8 --ntasks-per-node=2 --overcommit cordee vet protocol.yaml; echo code $?")
    assert "code 0" in said
    assert len(document(script)["nodes"]) == 4


def test_without_srun_only_this_node_is_vetted_and_that_is_said(script):
    said = script("cordee vet protocol.yaml; echo code $?")
    assert "put srun before cordee vet" in said
    assert [node["node"] for node in document(script)["nodes"]] == ["n1"]
    assert "code 0" in said


def test_the_script_of_the_page_trains_on_the_healthy_nodes(script):
    blocks = dict(re.findall(r"^```\w+\n# (vet\.sbatch|protocol\.yaml)\n(.*?)^```$", PAGE.read_text(), re.M | re.S))
    train = "import os; print('trains on', os.environ['SLURMD_NODENAME'])"
    health = '#!/bin/sh\ntest "$SLURMD_NODENAME" != n2\n'
    files = {"protocol.yaml": blocks["protocol.yaml"], "health": health, "train.py": train}
    said = script(blocks["vet.sbatch"], **files)
    assert "vetting: exclude, without: n2" in said
    assert sorted(re.findall(r"trains on (\w+)", said)) == ["n1", "n3", "n4"], said
