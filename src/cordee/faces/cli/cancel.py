"""`cordee cancel`."""

from __future__ import annotations

import time

import click

from cordee.backends.reconcile import known_until
from cordee.core.errors import CordeeError, RunFolderError
from cordee.core.terminal.output import print_json
from cordee.core.units import utc_text
from cordee.faces.cli.follow import request_cancel
from cordee.faces.cli.scheduler_state import words
from cordee.faces.report.run_document import run_document
from cordee.job.submit import Standing, Submitter, plan_of, submitter_of
from cordee.job.submit.parent import ParentSubmitter, open_children
from cordee.job.submit.settle import left_at_home
from cordee.job.terminal.options import json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of
from cordee.runs.children import GRAPH
from cordee.runs.disk import may_pass
from cordee.runs.folder import RunFolder, say
from cordee.runs.journal import client_journal
from cordee.runs.state import RunState

_POLL_S, _TELL_S, _AGE_S = 0.1, 15.0, 30.0
_FEW, _LAST_S = 3, 10.0


@click.command()
@run_argument
@click.option("--now", is_flag=True, help="Do not give ranks the time to save.")
@click.option("--wait", default=60.0, show_default=True, metavar="SECONDS", help="How long to wait for the end.")
@runs_option
@json_option
def command(run: str, now: bool, wait: float, runs: str | None, as_json: bool) -> None:
    """End RUN (default: the last one). Ranks that call cordee.stopping are asked to save and stop first.

    \b
    Example:
      cordee cancel last
      cordee cancel char-gpt-20261121T012244Z-kqzv --now
    """
    folder = found(run, runs)
    state = state_of(folder)
    if state.ended:
        _remove_what_is_left(folder, state, now=now)
    else:
        state = cancel(folder, now=now, wait_s=wait)
    if as_json:
        print_json(run_document(folder, state))
    else:
        click.echo(f"{folder.id}: {state.state}")


def cancel(folder: RunFolder, *, now: bool, wait_s: float) -> RunState:
    """End a run and return its last state; one that nobody leads any more is ended here.

    Raises:
        CordeeError: it has not ended within `wait_s`, or it has and that cannot be written.
    """
    place = submitter_of(folder)
    try:
        request_cancel(folder, by="cordee cancel", now=now)
    except RunFolderError as error:
        if not may_pass(error):
            raise
        place.cancel(folder)
        return _end(folder, "all its processes were killed: the disk did not take the wish to end it")
    for child in place.cancel_waiting(folder) if isinstance(place, ParentSubmitter) else ():
        _end(child, _taken_out(child))
    began = time.monotonic()
    _CancelWait(now, wait_s).below(folder)
    left_s = wait_s - (time.monotonic() - began)
    _CancelWait(now, max(left_s, min(_LAST_S, wait_s))).ended([folder])  # what leads the runs below it ends after them
    return state_of(folder)


class _CancelWait:
    """Waits for the end of runs that were asked for it, together for `wait_s`; says what it waits for.

    Args:
        now, wait_s: as in `cancel`.
    """

    def __init__(self, now: bool, wait_s: float) -> None:
        self._now, self._wait_s, self._deadline = now, wait_s, time.monotonic() + wait_s
        self._kept: CordeeError | None = None

    def below(self, folder: RunFolder) -> None:
        """Return once the children of a run have ended, and theirs before them.

        Raises:
            CordeeError: as `cancel`.
        """
        children = open_children(folder)
        for child in children:
            self.below(child)
        self.ended(children)

    def ended(self, folders: list[RunFolder]) -> None:
        """Return once runs have ended; those that wait are taken out of the queue, and those that nobody leads any more are ended here.

        Raises:
            CordeeError: as `cancel`.
        """
        places: dict[tuple[str, bool], tuple[Submitter, list[RunFolder]]] = {}
        for folder in folders:
            kind = (plan_of(folder)["backend"], (folder.root / GRAPH).is_file())
            places.setdefault(kind, (submitter_of(folder), []))[1].append(folder)
        age_s, told = 0.0, ""
        tell_at = time.monotonic() + (_TELL_S if len(folders) <= _FEW else 0.0)
        while True:
            began = time.monotonic()
            left = [each for place, some in places.values() for each in self._left(place, some, age_s)]
            if not left:
                break
            standing = left[0][2]
            if time.monotonic() > self._deadline:
                self._give_up(left)
                break
            is_new = len(folders) == 1 and standing.reason not in ("", told)
            if is_new or time.monotonic() > tell_at:
                told, tell_at = standing.reason, time.monotonic() + _TELL_S
                self._tell(len(folders), len(left), standing)
            age_s = _AGE_S
            time.sleep(max(_POLL_S, time.monotonic() - began))
        if self._kept is not None:
            raise self._kept

    def _give_up(self, left: list[tuple[Submitter, RunFolder, Standing]]) -> None:
        if not self._now:
            _, first, standing = left[0]
            raise CordeeError(
                f"the run has not ended within {self._wait_s:.0f} s: it {words(standing)}",
                given=first.id,
                next="wait: it knows that it is to end; or end it without saving: `cordee cancel --now`",
            )
        for place, folder, _ in left:
            place.cancel(folder)
            _end(folder, "all its processes were killed")

    def _left(
        self, place: Submitter, folders: list[RunFolder], age_s: float
    ) -> list[tuple[Submitter, RunFolder, Standing]]:
        """Return those of a place's runs that have not ended, where that is for them to do."""
        left = []
        for folder, standing in zip(
            list(folders), place.standings(folders, age_s=age_s) if folders else (), strict=True
        ):
            if not state_of(folder).ended:
                if standing.queued:
                    try:
                        _take_out(folder, place, now=self._now)
                    except CordeeError as error:  # the others end all the same
                        self._kept = self._kept or error
                elif standing.state == "gone":
                    _end(folder, "cancelled; nothing ran it any more")
                else:
                    left.append((place, folder, standing))
        folders[:] = [folder for _, folder, _ in left]
        return left

    def _tell(self, asked: int, left: int, standing: Standing) -> None:
        what = f"it was asked to end, and {words(standing)}"
        if asked > 1:
            what = f"{asked} of its runs were asked to end; {asked - left} have ended"
        say(f"cordee: {what}; waiting up to {self._deadline - time.monotonic():.0f} s")


def _take_out(folder: RunFolder, place: Submitter, *, now: bool) -> None:
    """Take a run out of the queue, unless that would lose what only the place has of it."""
    lost = "" if now else place.would_lose(folder)
    if lost:
        raise CordeeError(
            f"taking the run out of the queue now would lose {lost}",
            given=folder.id,
            next="wait: it ends itself, and comes home, when it starts again; `cordee cancel --now` loses that",
        )
    place.cancel(folder)
    _end(folder, _taken_out(folder))


def _taken_out(folder: RunFolder) -> str:
    """Return how a run has ended that is taken out of the queue; it may have run before."""
    return f"cancelled while it waited {'to go on' if state_of(folder).segments else 'in the queue'}"


def _remove_what_is_left(folder: RunFolder, state: RunState, *, now: bool) -> None:
    """Remove the job of a run that has ended and did not come home."""
    place = submitter_of(folder)
    left = place.not_home([folder]).get(folder.id)
    if left is None:
        return
    if not now:
        raise CordeeError(
            f"the run has ended ({state.state}), and what it made has not come home: it is {words(left)}",
            given=folder.id,
            next="`cordee cancel --now` removes the job, and loses what has not come home",
        )
    place.cancel(folder)


def _end(folder: RunFolder, text: str) -> RunState:
    state = state_of(folder)
    if not state.ended:
        journal = client_journal(folder.journal)
        seen = utc_text(known_until(folder, state))
        here = left_at_home(folder, state)
        journal.append("ended", state="cancelled", exit_code=1, reason="cancelled", text=text, seen=seen, **here)
        if journal.last_error is not None:
            raise CordeeError(
                f"the run is over ({text}), and its journal cannot say so: {journal.last_error.strerror}",
                given=str(folder.journal),
                next="make room, then `cordee cancel` it again",
            )
    return state_of(folder)
