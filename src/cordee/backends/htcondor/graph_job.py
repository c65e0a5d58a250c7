"""The job that starts what comes next of a run with children: at the access point, in the scheduler universe, as DAGMan's are."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from cordee.backends.htcondor.queue import HELD, IDLE, CondorJob, read_ads, run_command
from cordee.core.errors import CordeeError
from cordee.core.units import utc_text
from cordee.job.submit import submitter_of
from cordee.job.submit.settle import settle
from cordee.machine.processes.module_command import module_argv
from cordee.runs.folder import RunFolder, say
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.state import replay

GRAPH_ATTRIBUTE = "CordeeGraph"
_POLL_S, _PAUSE_S, _TRIES = 5.0, 60.0, 10
# Such a job waits for no machine: it begins with the schedd's next look at them.
_BEGINS_S = 60.0
# A graph of a thousand runs takes a while to look at, on a machine that many share.
_SHARE = 0.05
# What commands need to find the pool, the runs and the profiles. Everybody can read it in the queue.
_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TZ",
    "PYTHONPATH",
    "CONDOR_CONFIG",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "CORDEE_RUNS",
    "CORDEE_CLUSTERS_PATH",
)


def submit_graph_job(folder: RunFolder) -> None:
    """Submit the job of a run's children where none is in the queue. Without it, they start when somebody looks.

    Raises:
        HTCondorError: HTCondor takes no such job, or does not answer.
    """
    if _ads(folder, "ClusterId"):
        return
    path = folder.submit / "graph.sub"
    path.write_text(_description(folder))
    run_command(["condor_submit", "-terse", str(path)])


def trouble_of_graph_job(folder: RunFolder) -> str:
    """Return why the job of a run's children does not run, as a clause; empty: it does.

    Raises:
        HTCondorError: HTCondor does not answer.
    """
    ads = _ads(folder, "ClusterId", "JobStatus", "HoldReason", "EnteredCurrentStatus", "ServerTime")
    if not ads:
        return "the job that starts it is not in the queue"
    job = CondorJob(ads[-1])
    if job.status == HELD:
        return f"the job that starts it, {job.text('ClusterId')}, is held: {job.text('HoldReason')}"
    since = job.number("EnteredCurrentStatus")
    if job.status == IDLE and job.number("ServerTime") - since > _BEGINS_S:
        said = f"is idle since {utc_text(since)[:19]}Z: does START_SCHEDULER_UNIVERSE of the access point allow it?"
        return f"the job that starts it, {job.text('ClusterId')}, {said}"
    return ""


def _ads(folder: RunFolder, *names: str) -> list[dict[str, Any]]:
    ask = ["condor_q", "-constraint", f'{GRAPH_ATTRIBUTE} == "{folder.id}"', "-json", "-attributes", ",".join(names)]
    return read_ads("condor_q", run_command(ask))


def _description(folder: RunFolder) -> str:
    variables = [f"{name}={_quoted(os.environ[name])}" for name in _VARIABLES if name in os.environ]
    # HTCondor starts a copy of the executable, and a Python knows its environment by where it lies.
    words = [
        "-c",
        'exec "$@"',
        "sh",
        *module_argv("cordee.backends.htcondor.graph_job", str(folder.root), user_site=True),
    ]
    lines = [
        f"# What starts the runs below {folder.id} one after the other, and ends when they are over.",
        "universe = scheduler",
        "executable = /bin/sh",
        f'arguments = "{" ".join(map(_quoted, words))}"',
        f'environment = "{" ".join(variables)}"',
        f"initialdir = {os.getcwd()}",  # from where variables may name folders
        f"output = {folder.submit / 'graph.out'}",
        f"error = {folder.submit / 'graph.out'}",
        "remove_kill_sig = SIGTERM",
        f'+{GRAPH_ATTRIBUTE} = "{folder.id}"',
        "queue",
    ]
    return "\n".join([*lines, ""])


def _quoted(word: str) -> str:
    """Return a word of HTCondor's quoted lists."""
    return "'" + word.replace("'", "''").replace('"', '""') + "'"


def main(argv: list[str]) -> int:
    """Look at the run until it has ended, or is itself in the queue."""
    folder, tries = RunFolder(Path(argv[0])), 0
    while True:
        began = time.monotonic()
        try:
            place = submitter_of(folder)
            state = settle(folder, place.standing(folder, age_s=0.0))
            tries = 0
        except CordeeError as error:
            say(f"cordee: {error.text}")
            tries += 1
            if not folder.root.exists():
                return 1
            if tries == _TRIES:
                _give_up(folder, error)
                return 1
            time.sleep(_PAUSE_S)
            continue
        if state.ended or state.job is not None:
            return 0
        time.sleep(max(_POLL_S, (time.monotonic() - began) / _SHARE))


def _give_up(folder: RunFolder, error: CordeeError) -> None:
    if not replay(read_journal(folder.journal), folder.id).ended:
        text = f"what comes next could not be submitted: {error.text}"
        client_journal(folder.journal).append(
            "ended", state="failed", exit_code=error.exit_code, reason="refused", text=text
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
