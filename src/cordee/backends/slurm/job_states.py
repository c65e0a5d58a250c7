"""What Slurm says of this user's jobs: one answer shared by all commands, and never more than two questions a minute."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from cordee.backends.slurm.node.commands import ENDED_STATES, SlurmError, my_jobs, run_command
from cordee.core.errors import CordeeError
from cordee.runs.folder import write_atomically

_PER_MINUTE = 2
_MINUTE_S = 60.0
_LONGEST_BACKOFF_S = 600.0
_WITHOUT_SACCT_S = 3600.0
_ASK_S = 20.0
# What one command has asked for is asked again with what others ask for, so that all of them live on the same answers.
_WANTED_S = 600.0
_MOST_WANTED = 500


class JobStatus(NamedTuple):
    """A job's state as Slurm spells it, with the reason why it waits and what its script ended with."""

    state: str
    reason: str
    comment: str


class JobStates(NamedTuple):
    """What is known of jobs by id.

    Attributes:
        at: when it was asked, UTC epoch seconds.
        asked_for: the ids that were asked for.
        jobs: by id; a job that was asked for and is missing is unknown to Slurm, if `complete`.
        complete: whether the controller itself answered.
        trouble: why it did not.
        gone: since when jobs have been seen ended, UTC epoch seconds by id; kept until one is seen alive, or nobody has
            asked for it for a while.
    """

    at: float
    asked_for: frozenset[str]
    jobs: dict[str, JobStatus]
    complete: bool
    trouble: str
    gone: dict[str, float]


class SlurmJobStates:
    """Asks sacct, and squeue where there is none, and where a job is not simply running: sacct lags, and does not say why
    a job waits.

    Args:
        cache: the file that holds the last answer, one per cluster and user.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache or _cache_path()

    def answer(self, ids: Collection[str], *, age_s: float) -> JobStates:
        """Return an answer about `ids`, at most `age_s` old if the budget of questions allows it."""
        kept = self._read()
        answer = JobStates(
            kept.get("at", 0.0),
            frozenset(kept.get("asked_for", [])),
            {job: JobStatus(*status) for job, status in kept.get("jobs", {}).items()},
            kept.get("complete", False),
            kept.get("trouble", "never asked"),
            kept.get("gone", {}),
        )
        fresh = age_s > 0 and 0 <= time.time() - answer.at <= age_s and answer.asked_for.issuperset(ids)
        if fresh or (age_s > 0 and not self._may_ask(kept)):
            self._remember(ids)
            return answer
        return self._ask(frozenset(ids), kept)

    def _remember(self, ids: Collection[str]) -> None:
        """Have whoever may ask next ask for these jobs too; written rarely."""
        kept, now = self._read(), time.time()
        if any(not 0 <= now - kept.get("wanted", {}).get(job, 0.0) < _WANTED_S / 2 for job in ids):
            self._write({**kept, "wanted": _wanted(kept, ids, now)})

    def _may_ask(self, kept: dict[str, Any]) -> bool:
        now = time.time()
        recent = [at for at in kept.get("questions", []) if 0 <= now - at < _MINUTE_S]
        return len(recent) < _PER_MINUTE and now >= kept.get("not_before", 0.0)

    def _ask(self, wanted: frozenset[str], kept: dict[str, Any]) -> JobStates:
        now = time.time()
        ids = sorted(_wanted(kept, wanted, now))
        asked = 0
        jobs: dict[str, JobStatus] = {}
        without_sacct = kept.get("without_sacct_until", 0.0)
        if ids and now > without_sacct:
            asked += 1
            try:
                jobs = _from_sacct(ids)
            except SlurmError as error:
                without_sacct = now + (_MINUTE_S if error.busy else _WITHOUT_SACCT_S)
        complete, trouble = True, ""
        if not ids or any(job not in jobs or jobs[job].state != "RUNNING" for job in ids):
            asked += 1
            try:
                jobs.update(
                    {job.id: JobStatus(job.state, job.reason, job.comment) for job in my_jobs(timeout_s=_ASK_S)}
                )
            except SlurmError as error:
                complete, trouble = False, str(error.text)
        kept = self._read()  # others may have asked meanwhile: what they learned stays
        failures = 0 if complete else kept.get("failures", 0) + 1
        gone = kept.get("gone", {})
        over = {job for job in ids if complete and (job not in jobs or jobs[job].state in ENDED_STATES)}
        alive = {job for job, status in jobs.items() if status.state not in ENDED_STATES}
        wanted_at = _wanted(kept, wanted, now)
        gone = {job: gone.get(job, now) for job in over | (gone.keys() & wanted_at.keys()) - alive}
        questions = [at for at in kept.get("questions", []) if 0 <= now - at < _MINUTE_S] + [now] * asked
        answer = JobStates(now, frozenset(ids), jobs, complete, trouble, gone)
        self._write(
            {
                "at": now,
                "asked_for": ids,
                "wanted": wanted_at,
                "jobs": jobs,
                "complete": complete,
                "trouble": trouble,
                "gone": gone,
                "questions": questions,
                "without_sacct_until": without_sacct,
                "failures": failures,
                "not_before": now + min(_LONGEST_BACKOFF_S, _MINUTE_S * 2 ** (failures - 1)) if failures else 0.0,
            }
        )
        return answer

    def _read(self) -> dict[str, Any]:
        try:
            kept = json.loads(self._cache.read_text())
        except (OSError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}

    def _write(self, kept: dict[str, Any]) -> None:
        try:
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._cache, json.dumps(kept))
        except (OSError, CordeeError):
            return  # the next command asks again


def _wanted(kept: dict[str, Any], now_wanted: Collection[str], now: float) -> dict[str, float]:
    """Return when jobs were last asked for, by id: those of `now_wanted`, and the latest of what others want to know."""
    others = sorted(
        (
            (at, job)
            for job, at in kept.get("wanted", {}).items()
            if 0 <= now - at < _WANTED_S and job not in now_wanted
        ),
        reverse=True,
    )
    return {**{job: at for at, job in others[:_MOST_WANTED]}, **dict.fromkeys(now_wanted, now)}


def _from_sacct(ids: list[str]) -> dict[str, JobStatus]:
    argv = ["sacct", "--noheader", "--allocations", "--parsable2", "--format=JobIDRaw,State,ExitCode,Comment"]
    found = {}
    for line in run_command([*argv, f"--jobs={','.join(ids)}"], timeout_s=_ASK_S).splitlines():
        fields = line.split("|", 3)
        if len(fields) == 4:
            job, state, code, comment = fields
            found[job] = JobStatus(state.split(" ")[0], "" if code == "0:0" else f"exit code {code}", comment)
    return found


def _cache_path() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    where = f"{socket.gethostname()} {os.environ.get('SLURM_CONF', '')}"
    return base / "cordee" / f"slurm-jobs-{hashlib.sha256(where.encode()).hexdigest()[:12]}.json"
