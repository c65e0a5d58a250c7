"""What `cordee watch` knows of a run, read further as it goes on, and what its screen shows."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from cordee.core.draw.clean import one_line
from cordee.core.errors import CordeeError
from cordee.faces.cli.scheduler_state import stand, state_word, words
from cordee.faces.cli.watch.output import OutputTail
from cordee.faces.cli.watch.samples import NewestSamples
from cordee.job.submit import Standing
from cordee.runs.folder import RunFolder
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.lookout import TELEMETRY_COST, WATCHED_PER_S, Lookout
from cordee.runs.state import RunState
from cordee.systems.score.views import Scores
from cordee.telemetry.store.sealed import read_commit
from cordee.telemetry.store.unsealed.tail import LiveEvents

_STANDING_S, _SELDOM_S = 5.0, 30.0
_MOST_LINES = 200
_MOST_VALUES = 240
_MOST_EVENTS = 500_000
_OWN = "cordee/"


class WatchState:
    """What the screen shows; reads only what is new since the last time.

    Args:
        folder: the run's folder.

    Attributes:
        state: the run's state when the journal was last read.
        samples: rows over all devices.
        messages: the last lines of output, (rank, line); `last_of`: each rank's last.
        steps: the last step of each rank in the newest attempt.
        values: what the lowest rank logged, by name.
        standing: where the run stands with its scheduler; None where nobody was asked.
        score: the score's document; None: see `score_text`.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.state = RunState()
        self.samples = NewestSamples(folder)
        self.output = OutputTail(folder.logs)
        self.messages: deque[tuple[int, bytes]] = deque(maxlen=_MOST_LINES)
        self.last_of: dict[int, bytes] = {}
        self.steps: dict[int, int] = {}
        self.values: dict[str, deque[float]] = {}
        self.standing: Standing | None = None
        self.scores: Scores | None = None
        self.score: dict[str, Any] | None = None
        self.score_text = ""
        self._journal = JournalFollower(folder)
        self._lookout = Lookout(folder, shared_per_s=WATCHED_PER_S)
        self._samples_due = 0.0
        self._events = LiveEvents(folder.telemetry)
        self._next_standing = 0.0
        self._shown_rank: int | None = None
        self._begun = False
        self._attempt = 0

    def read(self) -> RunState:
        """Read what is new and return the run's state."""
        ended_before, seen = self.state.ended, self._lookout.look()
        if seen.journal or not self._begun:
            self.state = self._journal.read()
        self._ask_scheduler()
        if self.state.attempt != self._attempt:
            self._attempt = self.state.attempt
            self.steps.clear()
        ended = self.state.ended
        if not self._begun or ended != ended_before or (seen.telemetry and self._lookout.affordable(TELEMETRY_COST)):
            self._read_events()
            self.samples.read(self.state.started_at, ended=ended, now=ended and not ended_before)
        self._read_score()
        for rank, line in self.output.read(seen.logs):
            self.messages.append((rank, line))
            self.last_of[rank] = line
        return self.state

    @property
    def word(self) -> str:
        """The run's state, or the scheduler's word for it, see `state_word`."""
        return state_word(self.state.state, self.standing)

    @property
    def waits(self) -> str:
        """What the scheduler says of a run that does not run; empty where it runs, or nobody was asked."""
        return words(self.standing) if self.standing is not None and self.word != "running" else ""

    def _read_events(self) -> None:
        for event in self._events.read():
            values = {name: value for name, value in event.values.items() if not name.startswith(_OWN)}
            if not values:
                continue
            if event.attempt == self.state.attempt and event.step is not None:
                self.steps[event.rank] = event.step
            self._shown_rank = event.rank if self._shown_rank is None else min(self._shown_rank, event.rank)
            if event.rank == self._shown_rank:
                for name, value in values.items():
                    self.values.setdefault(name, deque(maxlen=_MOST_VALUES)).append(value)
        if not self._begun:
            self._begun = True
            self._read_sealed()

    def _read_sealed(self) -> None:
        """Begin with what was logged before: of a run that continues the last of it, of one that has ended all."""
        sealed = read_commit(self.folder.telemetry).event_rows
        if not 0 < sealed <= _MOST_EVENTS:
            return
        try:
            for name, rows in self.samples.run.events().items():
                if name.startswith(_OWN):
                    continue
                mean = self.samples.run.series(name).mean
                every = max(1, -(-len(mean) // _MOST_VALUES)) if self.state.ended else 1
                self.values[name] = deque(mean[::-1][::every][::-1].tolist(), maxlen=_MOST_VALUES)
                newest = rows[(rows["attempt"] == self.state.attempt) & (rows["step"] >= 0)]
                for rank, step in zip(newest["rank"].tolist(), newest["step"].tolist(), strict=True):
                    self.steps[rank] = max(step, self.steps.get(rank, step))
        except (CordeeError, OSError) as error:
            self.samples.trouble = one_line(str(error).partition("\n")[0])

    def _read_score(self) -> None:
        """Ask for the score, which a process of its own computes now and then while the run is watched."""
        if self.scores is None or not self.samples.rows:
            self.score_text = f"`cordee score {self.folder.id}` computes it" if self.samples.rows else ""
            return
        found, pending = self.scores.ask(self.folder.id, self.folder, ended=self.state.ended)
        if found is not None:
            self.score, self.score_text = found.document, found.why
        elif pending:
            self.score_text = "is being computed"

    def _ask_scheduler(self) -> None:
        """Learn why the run waits, and that its job is gone when nobody in it could say so."""
        if self.state.ended or (self.state.state == "running" and self._lookout.heard_lately):
            self.standing = None
            return  # its supervisor says that it lives
        if time.monotonic() < self._next_standing:
            return
        pause_s = _STANDING_S if self.state.state == "queued" else _SELDOM_S
        self._next_standing = time.monotonic() + self._lookout.seldom_s(pause_s)
        state, self.standing = stand(self.folder, self.state)
        if state.ended:
            self.state = self._journal.read()
