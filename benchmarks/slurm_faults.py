"""Has Slurm's own faults befall a training, one or two at once, again and again: each run must end right.

    python benchmarks/slurm_faults.py --kills 20 --slurm 4 --results slurm-faults.jsonl

The trainings, and what is right, are those of `kill_groups`. Each group is one or two of: the batch script dies while the supervisor or
the srun of the agents stands still, while the controller is away, or together with its slurmstepd, so that Slurm does not notice;
the job is suspended; the node of the batch script goes down, and is back before the controller restarts.
A job that Slurm holds after that is left to `cordee show`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import kill_campaign
from kill_campaign import campaign, seeds_of
from kill_groups import Scene, pid_of
from on_slurm.common import led_to

from cordee.backends.slurm.node.commands import SlurmError, job_record, run_command
from cordee.machine.processes import tree as processes
from cordee.testing.slurm import DisposableSlurm
from support.runs.real_run import LocalRun, SlurmRun

Mend = Callable[[], object]
_GROUPS = 2
_LED_S = 300.0
_DOWN_S = 100.0


class Faults(Scene):
    """Trainings on a Slurm of this machine's own, and what goes wrong with that.

    Args:
        parent: a scratch folder.
        cluster: the Slurm.
    """

    def __init__(self, parent: Path, cluster: DisposableSlurm) -> None:
        patient = {"vet__max_load": 1000.0, "timeouts__lost": 8.0, "timeouts__orphan": 10.0}
        super().__init__(parent, lambda job, runs: SlurmRun(job, runs, **patient), [])
        self._cluster = cluster
        self._kinds: dict[str, Callable[[LocalRun], Mend]] = {
            "hung supervisor, script killed": lambda run: self._hung(run, "supervisor"),
            "hung srun, script killed": lambda run: self._hung(run, "srun"),
            "script and its slurmstepd killed": self._unnoticed,
            "controller away, script killed": self._away,
            "suspended": self._suspended,
            "batch node back soon": self._back_soon,
        }

    def befall(self, run: LocalRun, rng: random.Random) -> list[list[str]]:
        """Have groups of one or two faults befall a run that is led, and mend each after a while."""
        groups = []
        for _ in range(_GROUPS):
            if not _until(lambda: all(pid_of(run, part) for part in ("script", "supervisor")), _LED_S):
                break
            time.sleep(rng.uniform(0.1, 4.0))
            kinds, mends = rng.sample(sorted(self._kinds), rng.choice((1, 2))), []
            for kind in kinds:
                with contextlib.suppress(
                    ProcessLookupError, SlurmError, IndexError
                ):  # the first left nothing for the second
                    mends.append(threading.Timer(rng.uniform(3.0, 40.0), self._kinds[kind](run)))
            for timer in mends:
                timer.start()
            for timer in mends:
                timer.join()
            groups.append(kinds)
        return groups

    def _hung(self, run: LocalRun, part: str) -> Mend:
        pid, script = run.pid(part), _script(run)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(script, signal.SIGKILL)
        return lambda: processes.kill_all([pid], signal.SIGCONT)

    def _unnoticed(self, run: LocalRun) -> Mend:
        script = _script(run)
        processes.kill_all([_parent(script), script])
        return lambda: None

    def _away(self, run: LocalRun) -> Mend:
        script = _script(run)
        self._cluster.stop_controller()
        os.kill(script, signal.SIGKILL)
        return self._cluster.start_controller

    def _suspended(self, run: LocalRun) -> Mend:
        job = str(run.state.job)
        run_command(["scontrol", "suspend", job])
        return lambda: _until(lambda: _resumed(job), _DOWN_S)

    def _back_soon(self, run: LocalRun) -> Mend:
        node = (job_record(str(run.state.job)) or {}).get("BatchHost", "").split()[0]
        self._cluster.kill_node(node)
        return lambda: self._bring_back(node)

    def _bring_back(self, node: str) -> None:
        _until(lambda: "DOWN" in run_command(["scontrol", "show", "node", node]), _DOWN_S)
        self._cluster.start_node(node)
        self._cluster.stop_controller()
        self._cluster.start_controller()


def _resumed(job: str) -> bool:
    """Resume a job; one that was requeued meanwhile is held, by Slurm's rule, for whoever has suspended it."""
    record = job_record(job) or {}
    state, held = record.get("JobState"), record.get("Reason") == "JobHeldAdmin"
    if state == "SUSPENDED" or held:
        run_command(["scontrol", "release" if held else "resume", job])
    return state != "COMPLETING" and state != "SUSPENDED"


def _until(condition: Callable[[], object], seconds: float) -> bool:
    """Wait for a condition, also while Slurm does not answer; return whether it came."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(SlurmError):
            if condition():
                return True
        time.sleep(0.5)
    return False


def _script(run: LocalRun) -> int:
    """Return the batch script's pid; raise ProcessLookupError where it is gone."""
    if not (pid := pid_of(run, "script")):
        raise ProcessLookupError("script")
    return pid


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def main() -> int:
    """Run the campaign; exit code 1 when a run did not end right."""
    options = kill_campaign.options(__doc__, 20, "slurm-faults.jsonl").parse_args()
    parent = Path(tempfile.mkdtemp(prefix="faults-"))
    settings = {"SlurmdTimeout": "60", "MessageTimeout": "30", "KillWait": "15"}
    with DisposableSlurm(parent / "c", nodes=options.slurm or 4, settings=settings) as cluster, led_to(cluster, parent):
        done = campaign(Faults(parent, cluster).run, options)
    groups = [group for one in done for group in one["killed"]]
    print(f"| what | how many |\n|---|---|\n| runs | {len(done)} |")
    for kind, count in Counter(kind for group in groups for kind in group).most_common():
        print(f"| {kind} | {count} |")
    print(f"| runs that `cordee resume` brought to their end | {sum(one['resumed'] > 0 for one in done)} |")
    print(f"| runs that did not end right | {seeds_of(done)} |")
    return 1 if any(one["wrong"] for one in done) else 0


if __name__ == "__main__":
    sys.exit(main())
