"""The submit seam for HTCondor."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tarfile
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from cordee.backends.htcondor.description import (
    DESCRIPTION,
    EVENTS,
    IMAGE,
    PROGRAM,
    TOGETHER,
    description,
    image_of,
    of_any,
    program,
    together,
    travels,
)
from cordee.backends.htcondor.graph_job import submit_graph_job, trouble_of_graph_job
from cordee.backends.htcondor.job_states import end_words, logged_end, state_of
from cordee.backends.htcondor.node.ads import CODE, LUGGAGE, NODE_SIDE, OPTIONAL
from cordee.backends.htcondor.queue import (
    HELD,
    IDLE,
    REMOVED,
    RUNNING,
    SENDING,
    SUSPENDED,
    CondorJob,
    HTCondorError,
    ended_job,
    ended_jobs,
    jobs_of,
    make_no_more,
    patiently,
    queued_jobs,
    run_command,
)
from cordee.backends.htcondor.refusals import explain_refusal
from cordee.core.errors import SubmitError
from cordee.job.submit._base import Standing, Submitter
from cordee.runs.folder import RunFolder, say
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.state import replay

_PATIENCE_S, _LEAVING_S, _POLL_S, _TELL_S = 300.0, 120.0, 0.2, 15.0
# What of a run's folder stays at home, or is named in the submit file.
_AT_HOME = frozenset(
    [
        "plan.json",
        "provenance.json",
        "node.zip",
        "journal",
        "checkpoints",
        "logs",
        "telemetry",
        "report",
        "submit",
        "control",
    ]
)


class HTCondorSubmitter(Submitter):
    """Hands runs to the access point that this machine's commands talk to."""

    script_name = DESCRIPTION
    poll_s = 5.0

    def __init__(self) -> None:
        self._asked_at = 0.0
        self._queue: dict[str, CondorJob] = {}
        self._ended: dict[str, CondorJob | None] = {}

    def script(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Return the submit file."""
        return description(folder, plan)

    def submit(self, folder: RunFolder, plan: dict[str, Any]) -> str:
        """Submit the run and return the job's id; a job of the run that waits, runs or is held is kept instead."""
        events = read_journal(folder.journal)
        asking = any(event["event"] in ("placing", "placed") for event in events)
        journal = client_journal(folder.journal)
        journal.append("placing")
        self._pack(folder, plan)
        _forget_requests(folder)

        def place() -> str:
            nonlocal asking
            there = [job.id for job in jobs_of([folder]) if job.active and job.run == folder.id] if asking else []
            asking = True
            return there[0] if there else _submitted(folder)

        try:
            job = patiently(place, most_s=_PATIENCE_S, waiting=_tell_waiting)
        except HTCondorError as error:
            trouble = _refused(error, folder)
            if not error.busy:
                journal.append(
                    "ended", state="failed", exit_code=trouble.exit_code, reason="refused", text=trouble.text
                )
            raise trouble from error
        self._asked_at = 0.0
        journal.append("placed", job=job)
        return job

    def submit_together(self, folders: list[RunFolder], plans: list[dict[str, Any]]) -> dict[str, str]:
        """Submit runs below one parent that ask for the same as the first: `condor_submit` takes them as one cluster."""
        text = of_any(folders[0], plans[0])
        alike = [(folder, plan) for folder, plan in zip(folders, plans, strict=True) if of_any(folder, plan) == text]
        if len(alike) == 1:
            return {folders[0].id: self.submit(folders[0], plans[0])}
        parent = RunFolder(folders[0].root.parent.parent)
        there: dict[str, str] = {}
        for folder, plan in alike:
            self._pack(folder, plan, folders[0] if folder is not folders[0] else None)
            _forget_requests(folder)

        def place() -> str:
            """Submit what is not there: an earlier try may have been taken, and its answer lost."""
            there.update((job.run, job.id) for job in jobs_of([one for one, _ in alike]) if job.active)
            new = [folder.id for folder, _ in alike if folder.id not in there]
            if new:
                path = _first_free(parent)
                path.write_text(together(text, plans[0], new, path))
                cluster = _submitted(folders[0], path).partition(".")[0]
                there.update((run, f"{cluster}.{number}") for number, run in enumerate(new))
            return ""

        try:
            patiently(place, most_s=_PATIENCE_S, waiting=_tell_waiting)
        except HTCondorError as error:
            raise _refused(error, parent) from error
        self._asked_at = 0.0
        for folder, _ in alike:
            client_journal(folder.journal).append("placed", durable=False, job=there[folder.id])
        return {folder.id: there[folder.id] for folder, _ in alike}

    @staticmethod
    def _pack(folder: RunFolder, plan: dict[str, Any], packed: RunFolder | None = None) -> None:
        """Write what only travelling runs have: the program, and what the run consists of, links and all.

        Args:
            packed: a run of the same parent, whose code and node side are the same.
        """
        try:
            path = folder.submit / PROGRAM
            path.write_text(program(folder, plan))
            path.chmod(0o700)
            image = image_of(plan["steps"][0])
            if travels(image):
                link = folder.submit / IMAGE
                link.unlink(missing_ok=True)
                link.symlink_to(image)
            folder.checkpoints.mkdir(mode=0o700, exist_ok=True)
            rest = sorted(set(os.listdir(folder.root)) - _AT_HOME - {folder.code.name})
            _pack_files(folder.submit / LUGGAGE, [folder.root / name for name in rest])
            if packed is not None:
                for name in (CODE, NODE_SIDE):
                    _share(packed.submit / name, folder.submit / name)
                return
            for place, _, names in os.walk(folder.code):
                for one in (Path(place, name) for name in names):
                    if not one.is_symlink() and not os.access(one, os.W_OK):
                        one.chmod(one.stat().st_mode | stat.S_IWUSR)  # what the script makes of it comes back
            _pack_files(folder.submit / CODE, [folder.code])
            _pack_node_side(folder)
        except OSError as error:
            raise SubmitError(
                f"the run cannot be made ready to travel: {error.strerror}", given=str(folder.submit), next="make room"
            ) from error

    def standings(self, folders: list[RunFolder], *, age_s: float = 30.0) -> list[Standing]:
        """Return what the queue, or the history, says of the runs' jobs."""
        try:
            self._ask(folders, age_s)
        except HTCondorError as error:
            return [Standing("unknown", _job_of(folder), error.text) for folder in folders]
        return [self._standing(folder) for folder in folders]

    def _ask(self, folders: list[RunFolder], age_s: float) -> None:
        now = time.time()
        if now - self._asked_at > min(age_s, self.poll_s) or age_s == 0.0:
            self._queue, self._asked_at = {job.run: job for job in jobs_of(folders, others=True)}, now
            self._ended = {name: job for name, job in self._ended.items() if job is not None}
        left = [job for folder in folders if folder.id not in self._queue and (job := _job_of(folder))]
        asked = set(left) - set(self._ended)
        if len(asked) > 1:  # one by one it would be a command for each
            self._ended.update(dict.fromkeys(asked))
            self._ended.update(
                (job.id, job) for job in ended_jobs({job.partition(".")[0] for job in asked}, len(asked))
            )

    def _standing(self, folder: RunFolder) -> Standing:
        job = self._queue.get(folder.id)
        if job is not None and not job.made and replay(read_journal(folder.journal), folder.id).ended:
            return Standing("gone", job.id, "it ends as soon as HTCondor has made it a job", at=self._asked_at)
        if job is not None and job.active:
            return _in_queue(job, self._asked_at)
        known = _job_of(folder)
        try:
            ended = self._ended[known] if known in self._ended else ended_job(folder.id)
        except HTCondorError as error:
            return Standing("unknown", known, error.text, at=self._asked_at)
        if ended is None and job is None:
            logged = logged_end(_events(folder), known) if known else ""  # histories are cut
            text = logged or ("HTCondor does not know it any more" if known else "it was never placed")
            return Standing("gone", known, text, at=self._asked_at, final=bool(logged))
        last = ended or job
        assert last is not None
        for name in OPTIONAL:
            with suppress(OSError):  # it holds something, or is not there
                (folder.root / name).rmdir()
        if ended is not None:
            self._ended[last.id] = ended
        since = last.ad.get("CompletionDate") or last.ad.get("EnteredCurrentStatus") or self._asked_at
        gone_s = max(0.0, self._asked_at - since)
        cut_off = last.status == REMOVED and last.ad.get("LastJobStatus") in (RUNNING, SENDING, SUSPENDED)
        final = last.id == known
        return Standing("gone", last.id, end_words(last), gone_s, at=self._asked_at, final=final, cut_off=cut_off)

    def not_home(self, folders: list[RunFolder]) -> dict[str, Standing]:
        """Return the standings of ended runs whose job waits or is held, as their way home failed; none where HTCondor cannot be asked."""
        with suppress(HTCondorError):
            self._ask([], 30.0)
        ids = {folder.id for folder in folders}
        found = {
            job.run: _in_queue(job, self._asked_at) for job in self._queue.values() if job.active and job.run in ids
        }
        return {run: standing for run, standing in found.items() if standing.queued}

    def cancel(self, folder: RunFolder) -> None:
        """Bring home what an eviction has kept, and remove the run's jobs.

        Raises:
            SubmitError: the access point did not answer for minutes.
        """

        def end() -> str:
            jobs = [job for job in queued_jobs(folder.id) if job.active]  # one that is not made yet ends when it begins
            for job in jobs:
                _bring_home(job, folder)
            return run_command(["condor_rm", *(job.id for job in jobs)]) if jobs else ""

        try:
            patiently(end, most_s=_PATIENCE_S, waiting=_tell_waiting)
        except HTCondorError as error:
            raise _not_removed(error, folder) from error

    def cancel_waiting(self, folders: list[RunFolder]) -> list[RunFolder]:
        """Remove the jobs that no machine has ever had, and have no more made of their clusters.

        Raises:
            SubmitError: the access point did not answer for minutes.
        """
        ids, taken = {folder.id: folder for folder in folders}, set[str]()

        def end() -> str:
            jobs = [job for job in jobs_of(folders) if job.run in ids and job.status in (IDLE, HELD) and not job.starts]
            for cluster in {job.text("ClusterId") for job in jobs if not job.made}:
                make_no_more(cluster)
            made = [job.id for job in jobs if job.made]
            taken.update(job.run for job in jobs)
            return run_command(["condor_rm", *made]) if made else ""

        try:
            patiently(end, most_s=_PATIENCE_S, waiting=_tell_waiting)
        except HTCondorError as error:
            raise _not_removed(error, folders[0]) from error
        return [ids[run] for run in taken]

    def start_children(self, folder: RunFolder) -> None:
        """Submit the job that starts them; where HTCondor refuses it, they start when somebody looks at the run."""
        try:
            submit_graph_job(folder)
        except (HTCondorError, OSError) as error:
            what = f"what comes after it starts when somebody looks: `cordee watch {folder.id}`"
            say(f"cordee: HTCondor takes no job in the scheduler universe ({error}); {what}")

    def starts_nothing(self, folder: RunFolder) -> str:
        """Return what became of the job that starts them."""
        try:
            return trouble_of_graph_job(folder)
        except HTCondorError:
            return ""

    def would_lose(self, folder: RunFolder) -> str:
        """Return what is lost where a run that waits is taken out of the queue now: what only the pool has of it."""
        try:
            jobs = [job for job in queued_jobs(folder.id) if job.active and job.starts]
        except HTCondorError:
            return ""
        for job in jobs:
            _wait_until_left(job, folder)
        state = replay(read_journal(folder.journal), folder.id)
        kept = [job for job in jobs if not _is_readable(job)]
        if state.checkpoint != state.segment_checkpoint:
            kept = [
                job for job in kept if job.silent_since is None
            ]  # it went with its machine, whatever becomes of the job
        if not kept or state.checkpoint is None or (folder.checkpoints / state.checkpoint).exists():
            return ""
        return f"its newest checkpoint, {state.checkpoint}, which an eviction left with the pool"


def _forget_requests(folder: RunFolder) -> None:
    for path in folder.requests.glob("*.json"):
        path.unlink(missing_ok=True)  # what was asked of an earlier job


def _not_removed(error: HTCondorError, folder: RunFolder) -> SubmitError:
    what = "try `cordee cancel` again later"
    return SubmitError(f"HTCondor did not remove the job: {error.text}", given=folder.id, next=what)


def _pack_files(target: Path, paths: list[Path]) -> None:
    beside = target.with_name(f".{target.name}")
    with tarfile.open(beside, "w:gz", compresslevel=1) as archive:
        for path in paths:
            archive.add(path.resolve() if path.is_symlink() else path, arcname=path.name)  # children share their code
    beside.replace(target)


def _share(source: Path, target: Path) -> None:
    beside = target.with_name(f".{target.name}")
    beside.unlink(missing_ok=True)
    try:
        os.link(source, beside)
    except OSError:
        shutil.copyfile(source, beside)
    beside.replace(target)


def _first_free(parent: RunFolder) -> Path:
    """Return where the next description of many runs goes: earlier ones say which jobs HTCondor is still to make."""
    number = 1
    while (path := parent.submit / TOGETHER.format(number=number)).exists():
        number += 1
    return path


def _pack_node_side(folder: RunFolder) -> None:
    """Write the node side as small as it goes: what Python compiles it compiles there."""
    beside = folder.submit / f".{NODE_SIDE}"
    with zipfile.ZipFile(folder.node_zip) as whole, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as small:
        for entry in whole.infolist():
            if not entry.filename.endswith(".pyc"):
                small.writestr(entry.filename, whole.read(entry))
    beside.replace(folder.submit / NODE_SIDE)


def _in_queue(job: CondorJob, at: float) -> Standing:
    state = state_of(job)
    text = state.text or ("no machine has taken it yet" if state.standing == "waiting" else "")
    return Standing(state.standing, job.id, text, at=at, next=state.next)


def _submitted(folder: RunFolder, description: Path | None = None) -> str:
    """Submit the run's description, or that of many beside it, and return the id of the first job."""
    path = str(description or Path(folder.id, "submit", DESCRIPTION))
    said = run_command(["condor_submit", "-terse", path], cwd=str(folder.root.parent))
    first = said.strip().splitlines()[-1:] or [""]
    return first[0].split(" - ")[0].strip()


def _refused(error: HTCondorError, folder: RunFolder) -> SubmitError:
    if error.busy:
        what = f"`cordee resume {folder.id}` submits it once it answers; it is never submitted twice"
        return SubmitError(f"the access point does not answer: {error.text}", given=folder.id, next=what)
    known = explain_refusal(error.text)
    if known is None:
        given = str(folder.submit / DESCRIPTION)
        return SubmitError(f"HTCondor refused the run: {error.text}", given=given, next="correct what it names")
    text = known.text if error.missing else f"HTCondor refused the run: {error.text} ({known.text})"
    return SubmitError(text, given=folder.id, next=known.next)


def _tell_waiting(error: HTCondorError) -> None:
    say(f"cordee: the access point of HTCondor does not answer, trying again: {error.text}")


def _job_of(folder: RunFolder) -> str | None:
    return replay(read_journal(folder.journal), folder.id).job


def _kept_at(job: CondorJob) -> Path | None:
    """Return where the access point keeps what an eviction left of a job, None where that is not known."""
    try:
        spool = run_command(["condor_config_val", "SPOOL"]).strip()
    except HTCondorError:
        return None
    cluster, _, process = job.id.partition(".")
    return Path(spool, str(int(cluster) % 10000), str(int(process) % 10000), f"cluster{cluster}.proc{process}.subproc0")


def _is_readable(job: CondorJob) -> bool:
    kept = _kept_at(job)
    return kept is not None and os.access(kept, os.R_OK | os.X_OK)


def _events(folder: RunFolder) -> str:
    try:
        return (folder.submit / EVENTS).read_text(errors="replace")
    except OSError:
        return ""


def _is_at_a_machine(folder: RunFolder) -> bool:
    """Return whether a job has begun on a machine and has not left it, as its event log says: a held one is still on its way back."""
    last: str = (re.findall(r"^(001|004|005|009|012|024) ", _events(folder), re.MULTILINE) or [""])[-1]
    return last == "001"


def _wait_until_left(job: CondorJob, folder: RunFolder) -> None:
    """Wait until a job that does not run any more has left its machine: what it saves there is on its way."""
    deadline, told = time.monotonic() + _LEAVING_S, 0.0
    while job.status != RUNNING and _is_at_a_machine(folder) and time.monotonic() < deadline:
        if time.monotonic() > told + _TELL_S:
            told, most_s = time.monotonic(), deadline - time.monotonic()
            say(f"cordee: job {job.id} leaves its machine; waiting up to {most_s:.0f} s for what it saves there")
        time.sleep(_POLL_S)


def _bring_home(job: CondorJob, folder: RunFolder) -> None:
    """Copy what an eviction has kept into the run's folder: removing the job deletes it."""
    _wait_until_left(job, folder)
    kept = _kept_at(job) if job.starts else None
    source = kept / folder.id if kept is not None else None
    if source is not None and os.access(source, os.R_OK | os.X_OK):
        for place, _, names in os.walk(source):
            target = folder.root / os.path.relpath(place, source)
            target.mkdir(mode=0o700, exist_ok=True)
            for name in names:
                there, here = Path(place, name), target / name
                if not here.exists() or here.stat().st_mtime < there.stat().st_mtime:  # what came home later is newer
                    shutil.copy2(there, here)
