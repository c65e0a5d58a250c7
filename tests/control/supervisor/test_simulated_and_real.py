"""The same scenarios in the simulator and on real sockets, with real processes: the journals say the same, but for the times."""

from __future__ import annotations

import os
import signal

import pytest

from support.runs.proxied import proxied
from support.simulation import Case, RunScript, VirtualFault, simulate

pytestmark = pytest.mark.usefixtures("real")

# What grows with time, or is made by the document side.
_OTHER = ("progress", "checkpoint_seen", "finding", "sealed", "data_read")
_TOLD = ("node", "rank", "attempt", "outcome", "code", "signal", "reason", "verdict", "state", "exit_code")
_TRAIN = """
import os, time
time.sleep(60.0 if os.environ.get("KILLED") and os.environ["CORDEE_ATTEMPT"] == "1" else 0.3)
"""
_LOST = ("setup", "setup_done", "checks", "checks_done", "port", "ranks", "ranks_started", "ranks_ended")
_BREAKS = ("ranks", "ranks_ended")
SCENARIOS = {
    "nothing": None,
    **{f"{kind} is lost": (kind, False) for kind in _LOST},
    **{f"the connection breaks behind {kind}": (kind, True) for kind in _BREAKS},
    "a rank is killed": "kill",
}


def trace(events, node):
    """Return what a journal says, without times, names of machines and process numbers."""
    told = []
    for event in events:
        if event["event"] not in _OTHER:
            fields = {key: event[key] for key in _TOLD if event.get(key) is not None}
            if event["event"] == "supervisor_started":
                fields.clear()  # which machine it is on is the place's concern
            elif fields.get("node") == node:
                fields["node"] = "n0"
            if "reason" in fields:
                fields["reason"] = str(fields["reason"]).replace(node, "n0")
            told.append((event["epoch"], event["event"], fields))
    return told


def simulated(what):
    faults = ()
    if what == "kill":
        faults = (VirtualFault("kill_rank", 0.1, "event rank_started 1"),)
    elif what is not None:
        kind, arrives = what
        faults = (
            VirtualFault("cut", 0.02, f"message {kind} 1")
            if arrives
            else VirtualFault("lose", 0.0, f"message {kind} 1"),
        )
    script = RunScript(nodes=1, spares=0, steps=3, step_s=0.1, setup_s=0.1)
    result = simulate(Case(1, script, faults))
    assert result.violations == []
    return trace(result.journal, "n0")


def real(what, job, runs):
    folder = job(_TRAIN, toml='setup = ["true"]\n', run="python train.py")
    if what == "kill":
        (folder / "cordee.toml").write_text((folder / "cordee.toml").read_text() + '[env]\nKILLED = "1"\n')
    with proxied(folder, runs, 0) as run:
        if isinstance(what, tuple):
            run.proxy.cuts = {what}
        run.start_agent(0)
        if what == "kill":
            run.run.wait_training(1)
            os.kill(run.run.pid("rank 0"), signal.SIGKILL)
        run.run.wait(lambda state: state.ended)
        assert not run.proxy.cuts
        return trace(run.run.events(), "local-0")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_simulated_run_and_a_real_one_write_the_same_journal(scenario, job, tmp_path):
    assert real(SCENARIOS[scenario], job, tmp_path / "runs") == simulated(SCENARIOS[scenario])
