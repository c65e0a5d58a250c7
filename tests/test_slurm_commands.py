"""Slurm's commands as every side uses them, without a Slurm."""

from __future__ import annotations

import pytest

from cordee.backends.slurm.node.commands import (
    QueuedJob,
    SlurmError,
    parse_records,
    patiently,
    run_command,
    submission_environment,
)
from cordee.core.errors import CordeeError
from cordee.core.hostlist import expand_nodes
from support.clocks import give_clock

SCRIPT = "#!/bin/bash\n#SBATCH --partition=normal\n#SBATCH --time=60\n"


def test_a_list_of_nodes_is_expanded_in_its_order():
    assert expand_nodes("n[1-3,07],login1") == ["n1", "n2", "n3", "n07", "login1"]
    assert expand_nodes("r[1-2]c[08-10]-ib") == [f"r{r}c{c}-ib" for r in (1, 2) for c in ("08", "09", "10")]


@pytest.mark.parametrize("nodes", ["n[1-3", "n[a-b]", "n[1-]"])
def test_a_malformed_list_of_nodes_is_refused(nodes):
    with pytest.raises(CordeeError, match="list of nodes"):
        expand_nodes(nodes)


def test_values_of_a_record_may_hold_blanks_and_equals_signs():
    (record,) = parse_records("JobId=7 JobName=a b Comment=cordee:x TRES=cpu=1,mem=2G Reason=QOS limit\n")
    assert (record["JobName"], record["TRES"], record["Reason"]) == ("a b", "cpu=1,mem=2G", "QOS limit")


def test_what_the_shell_says_about_another_job_stays_behind():
    env = submission_environment(
        SCRIPT,
        {
            "PATH": "/bin",
            "SLURM_CONF": "/etc/slurm.conf",
            "SLURM_JOB_ID": "3",
            "SLURM_RESTART_COUNT": "2",
            "SRUN_DEBUG": "3",
            "CORDEE_JOB_STARTED": "1",
        },
    )
    assert env == {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf"}


def test_a_persons_defaults_hold_only_where_the_script_says_nothing():
    given = {"SBATCH_PARTITION": "debug", "SBATCH_ACCOUNT": "a1", "SBATCH_TIMELIMIT": "5", "SBATCH_REQUEUE": "1"}
    assert submission_environment(SCRIPT, given) == {"SBATCH_ACCOUNT": "a1"}


@pytest.mark.parametrize(
    ("state", "active"),
    [("PENDING", True), ("RUNNING", True), ("COMPLETING", False), ("FAILED", False), ("PREEMPTED", False)],
)
def test_a_job_is_active_while_it_holds_nodes_or_waits(state, active):
    assert QueuedJob("1", state, "", "").active is active


def test_a_command_that_is_not_there_is_missing_and_not_busy():
    with pytest.raises(SlurmError) as caught:
        run_command(["no-such-command-of-slurm"])
    assert (caught.value.missing, caught.value.busy) == (True, False)


def test_a_command_without_an_answer_is_busy():
    with pytest.raises(SlurmError, match="no answer") as caught:
        run_command(["sleep", "30"], timeout_s=0.1)
    assert caught.value.busy


def test_patience_is_for_busy_controllers_only(monkeypatch):
    give_clock(monkeypatch, "cordee.backends.slurm.node.commands", sleep=lambda seconds: None)
    answers = [SlurmError(["squeue"], "socket timed out", busy=True), SlurmError(["squeue"], "Invalid user")]
    waited = []

    def ask() -> str:
        raise answers.pop(0)

    with pytest.raises(SlurmError, match="Invalid user"):
        patiently(ask, most_s=60.0, waiting=waited.append)
    assert len(waited) == 1
    assert answers == []
