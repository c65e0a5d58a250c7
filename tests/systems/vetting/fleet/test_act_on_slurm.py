"""`cordee nodes act` against a real Slurm: it drains and brings back, and touches nothing that is not its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.vetting.fleet.audit import Audit
from cordee.systems.vetting.fleet.cluster import ask_node
from cordee.testing.slurm import DisposableSlurm

from .conftest import broken, clean, slow

Act = Callable[..., dict[str, Any]]


@pytest.fixture
def nodes(slurm: DisposableSlurm) -> list[str]:
    return slurm.node_names


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes the cluster's profile."""

    def write(text: str) -> None:
        (tmp_path / "clusters").mkdir(exist_ok=True)
        (tmp_path / "clusters" / "here.toml").write_text(f'name = "here"\nscheduler = "slurm"\n{text}')
        monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
        monkeypatch.setenv("CORDEE_ON", "here")

    return write


def command(folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "cordee.faces.cli", "nodes", "act", "--history", str(folder), *more]


@pytest.fixture
def act(folder: Path) -> Act:
    """Runs `cordee nodes act --json`."""

    def act(*more: str, code: int = 0) -> dict[str, Any]:
        done = subprocess.run(command(folder, *more, "--json"), capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    return act


def phases(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(action["action"], action["node"], action["phase"]) for action in document["actions"]]


def test_the_second_confirmation_drains_a_node_with_its_reason(slurm, nodes, folder, remember, act):
    node, *others = nodes
    remember(slow(node, "11", tuple(others[:2])))
    assert act("--yes")["actions"] == []
    remember(slow(node, "12", tuple(others[1:3])))
    planned = act()
    assert phases(planned) == [("drain", node, "planned")]
    assert planned["actions"][0]["how"].startswith(f"scontrol update NodeName={node} State=DRAIN 'Reason=cordee: ")
    assert not ask_node(node).drained
    assert phases(act("--yes")) == [("drain", node, "done")]
    state = ask_node(node)
    assert state.drained
    today = time.strftime("%Y-%m-%d", time.gmtime())
    assert state.reason == f"cordee: node_problem pair.slow job 12 {today}"
    assert act("--yes")["actions"] == []
    (deed,) = Audit(folder / "actions.jsonl").deeds()
    assert (deed.action, deed.phase, deed.reason) == ("drain", "done", state.reason)


@pytest.mark.gate
def test_a_drain_of_an_administrator_is_left_alone(slurm, nodes, remember, act):
    slurm.drain(nodes[0], "fan is broken")
    remember(broken(nodes[0], "1"))
    (action,) = act("--yes")["actions"]
    assert (action["phase"], "fan is broken" in action["said"]) == ("held", True)
    assert ask_node(nodes[0]).reason == "fan is broken"
    remember(clean(nodes[0], "2", ("gpu.xid",)), clean(nodes[0], "3", ("gpu.xid",)))
    act("--yes")
    assert ask_node(nodes[0]).drained


def test_two_clean_vettings_bring_a_node_back(slurm, nodes, remember, act):
    remember(broken(nodes[0], "1"))
    assert phases(act("--yes")) == [("drain", nodes[0], "done")]
    remember(clean(nodes[0], "2", ("gpu.xid",)))
    assert act("--yes")["actions"] == []
    remember(clean(nodes[0], "3", ("gpu.xid",)))
    assert phases(act("--yes")) == [("resume", nodes[0], "done")]
    assert not ask_node(nodes[0]).drained
    assert act("--yes")["actions"] == []


def test_a_drain_whose_reason_was_changed_is_not_taken_back(slurm, nodes, remember, act):
    remember(broken(nodes[0], "1"))
    act("--yes")
    slurm.drain(nodes[0], "see ticket 5")
    remember(clean(nodes[0], "2", ("gpu.xid",)), clean(nodes[0], "3", ("gpu.xid",)))
    assert act("--yes")["actions"] == []
    assert ask_node(nodes[0]).reason == "see ticket 5"


def test_only_one_of_four_nodes_is_drained_in_a_day(slurm, nodes, remember, act):
    remember(*[broken(node, "1") for node in nodes])
    found = phases(act("--yes"))
    assert [phase for _, _, phase in found] == ["done", "held", "held", "held"]
    assert [phase for _, _, phase in phases(act("--yes"))] == ["held"] * 3
    assert sum(ask_node(node).drained for node in nodes) == 1


def test_a_node_in_a_reservation_for_maintenance_is_left_alone(slurm, nodes, remember, act):
    user = slurm.command("scontrol", "show", "config")
    owner = re.search(r"SlurmUser\s*=\s*(\w+)", user)[1]
    slurm.command(
        "scontrol", "create", "reservation", "ReservationName=service", f"Users={owner}", "StartTime=now", "Duration=60",
        "Flags=MAINT,IGNORE_JOBS", f"Nodes={nodes[0]}",
    )  # fmt: skip
    try:
        remember(broken(nodes[0], "1"))
        (action,) = act("--yes")["actions"]
        assert (action["phase"], action["said"]) == ("held", "it is under maintenance")
    finally:
        slurm.command("scontrol", "delete", "ReservationName=service")


def test_a_round_that_was_killed_in_the_middle_is_found_out(slurm, nodes, folder, remember, act, tmp_path):
    remember(broken(nodes[0], "1"))
    real = subprocess.run(
        ["sh", "-c", "command -v scontrol"], capture_output=True, text=True, check=True
    ).stdout.strip()
    fakes = tmp_path / "fakes"
    fakes.mkdir()
    # Slurm does it, and then whoever asked is killed before it can write that down.
    script = f'#!/bin/sh\n{real} "$@"; code=$?\ncase "$*" in update*) kill -9 $PPID;; esac\nexit $code\n'
    (fakes / "scontrol").write_text(script)
    (fakes / "scontrol").chmod(0o755)
    env = {**os.environ, "PATH": f"{fakes}{os.pathsep}{os.environ['PATH']}"}
    assert subprocess.run(command(folder, "--yes"), env=env, check=False, capture_output=True).returncode == -9
    assert ask_node(nodes[0]).drained
    assert [deed.phase for deed in Audit(folder / "actions.jsonl").deeds()] == ["open"]
    done = act("--yes")
    assert [(found["action"], found["phase"]) for found in done["found"]] == [("drain", "done")]
    assert done["actions"] == []
    assert [deed.phase for deed in Audit(folder / "actions.jsonl").deeds()] == ["done"]


def test_a_round_that_was_killed_before_slurm_heard_of_it_is_done_again(slurm, nodes, folder, remember, act, tmp_path):
    remember(broken(nodes[0], "1"))
    fakes = tmp_path / "fakes"
    fakes.mkdir()
    real = subprocess.run(
        ["sh", "-c", "command -v scontrol"], capture_output=True, text=True, check=True
    ).stdout.strip()
    script = f'#!/bin/sh\ncase "$*" in update*) kill -9 $PPID; exit 1;; esac\nexec {real} "$@"\n'
    (fakes / "scontrol").write_text(script)
    (fakes / "scontrol").chmod(0o755)
    env = {**os.environ, "PATH": f"{fakes}{os.pathsep}{os.environ['PATH']}"}
    assert subprocess.run(command(folder, "--yes"), env=env, check=False, capture_output=True).returncode == -9
    assert not ask_node(nodes[0]).drained
    done = act("--yes")
    assert [(found["action"], found["phase"]) for found in done["found"]] == [("drain", "failed")]
    assert phases(done) == [("drain", nodes[0], "done")]


def test_the_ladder_is_climbed_with_the_sites_commands(slurm, nodes, folder, remember, act, profile, tmp_path):
    log = tmp_path / "log"
    profile(
        "[vetting.actions]\n"
        f'reboot = ["/bin/sh", "-c", "echo reboot $0 >> {log}", "{{node}}"]\n'
        f'ticket = ["/bin/sh", "-c", "cat >> {log}"]\n'
    )
    remember(broken(nodes[0], "1"))
    assert phases(act("--yes")) == [("drain", nodes[0], "done")]
    assert phases(act("--yes")) == [("reboot", nodes[0], "done")]
    assert log.read_text() == f"reboot {nodes[0]}\n"
    assert act("--yes")["actions"] == []
    remember(broken(nodes[0], "2"))
    assert phases(act("--yes")) == [("ticket", nodes[0], "done")]
    ticket = json.loads(log.read_text().splitlines()[1])
    assert (ticket["node"], ticket["rule"], ticket["evidence"][-1]["text"]) == (nodes[0], "xid.79", "GPU 3: XID 79")
    assert act("--yes")["actions"] == []


def test_a_controller_that_is_down_is_said_and_the_service_outlives_it(
    slurm, nodes, folder, remember, act, monkeypatch
):
    monkeypatch.setenv("SLURM_CONF", slurm.impatient()["SLURM_CONF"])
    slurm.stop_controller()
    service = subprocess.Popen(
        command(folder, "--yes", "--watch", "--interval", "1s"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert act("--yes", "--audit", str(folder / "other.jsonl"), code=5)["error"]["kind"] == "submit"
        remember(broken(nodes[0], "1"))
        lines = iter(service.stdout.readline, "")
        assert any("scontrol" in line for line in lines)
        slurm.start_controller()
        assert any(f"did drain {nodes[0]}" in line for line in lines)
        assert ask_node(nodes[0]).drained
        other = subprocess.run(command(folder, "--yes"), capture_output=True, text=True, check=False)
        assert "is at work" in other.stderr
    finally:
        service.send_signal(signal.SIGTERM)
        rest, _ = service.communicate(timeout=60)
        slurm.start_controller()
    assert service.returncode == 0
    assert rest.splitlines()[-1].endswith("ended")


def test_vettings_of_another_cluster_do_not_count(slurm, nodes, remember, act):
    remember({**broken(nodes[0], "1"), "cluster": "elsewhere"})
    assert act("--yes")["actions"] == []


def test_only_protocols_that_the_site_trusts_count(slurm, nodes, remember, act, profile):
    profile('[vetting.offenders]\nprotocols = ["site"]\n')
    remember(broken(nodes[0], "1"))
    assert act()["actions"] == []
    remember(broken(nodes[0], "2", protocol="site"))
    assert phases(act()) == [("drain", nodes[0], "planned")]


PROTOCOL = """
name: own
deadline: 20s
evals:
- {name: own, type: command, command: ./own}
"""


def test_vettings_of_two_jobs_end_in_a_drain_with_its_reason(slurm, nodes, folder, act, tmp_path):
    here = tmp_path / "job"
    here.mkdir()
    (here / "protocol.yaml").write_text(PROTOCOL)
    (here / "own").write_text(f'#!/bin/sh\ntest "$SLURMD_NODENAME" != {nodes[3]}\n')
    (here / "own").chmod(0o755)
    vet = [sys.executable, "-m", "cordee.faces.cli", "vet", "protocol.yaml", "--history", str(folder)]
    for confirmations in (1, 2):
        assert act("--yes")["actions"] == []
        done = subprocess.run(
            ["srun", "--nodes=4", "--ntasks-per-node=1", *vet], cwd=here, capture_output=True, text=True, check=False
        )
        assert done.returncode == 3, done.stdout + done.stderr
        offenders = subprocess.run(
            [sys.executable, "-m", "cordee.faces.cli", "nodes", "offenders", "--history", str(folder), "--json"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        (offender,) = json.loads(offenders.stdout)["offenders"]
        assert (offender["node"], offender["jobs"], offender["confirmed"]) == (
            nodes[3],
            confirmations,
            confirmations == 2,
        )
    assert phases(act("--yes")) == [("drain", nodes[3], "done")]
    assert re.fullmatch(r"cordee: node_problem check\.failed job \d+ \d{4}-\d\d-\d\d", ask_node(nodes[3]).reason)
