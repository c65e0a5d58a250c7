"""What has changed in a run, looked up again and again at little cost."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from cordee.core.errors import CordeeError
from cordee.faces.web.runs.document import findings_of
from cordee.faces.web.runs.logged import OWN
from cordee.faces.web.runs.open_run import Reading
from cordee.runs.state import RunState

_MOST_NAMES = 200


@dataclass
class RunLook:
    """What is true of a run now.

    Attributes:
        kinds: for each kind of event a tag that changes with it, and its content.
        findings: all of them.
    """

    kinds: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)


class PageFollower:
    """Looks at a run, reading only what is new.

    Args:
        reading: the run, which others may read meanwhile.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._stamp: Hashable = None
        self._look = RunLook()
        self._newest: dict[str, float] = {}
        self._logged: dict[str, tuple[int, dict[int, tuple[float, float]]]] = {}

    def look(self) -> RunLook:
        """Return what is true now; the same object where nothing in the folder has changed.

        Raises:
            Busy: too many ask about this run.
        """
        stamp = self._reading.stamp()
        if stamp == self._stamp:
            return self._look
        state, fault = self._reading.state()
        version = self._reading.journal.version
        look = RunLook({"state": (f"{version}:{state.state}:{bool(fault)}", self._state(state, fault))})
        look.findings = findings_of(self._reading, state)
        samples, logged, bytes_logged = self._samples(), self._values(), self._reading.log_bytes()
        if samples:
            look.kinds["samples"] = (_tag(samples), samples)
        if logged:
            look.kinds["logged"] = (_tag(logged), logged)
        if bytes_logged:
            look.kinds["logs"] = (str(bytes_logged), {"bytes": bytes_logged})
        self._stamp, self._look = stamp, look
        return look

    def _state(self, state: RunState, fault: CordeeError | None) -> dict[str, Any]:
        return {
            "state": "unreadable" if fault is not None else state.state,
            "text": fault.text if fault is not None else state.text,
            "attempt": state.attempt,
            "restarts": state.restarts,
            "segments": state.segments,
            "step": state.step,
            "total": state.total,
            "version": self._reading.journal.version,
            "now": time.time(),
        }

    def _samples(self) -> dict[str, float]:
        """Return the time of the newest sample by group."""
        try:
            with self._reading.run() as run:
                for group in run.groups():
                    source = run.source(group)
                    first, stop = source.extent()
                    if stop > first:
                        self._newest[group] = (stop - 1) * source.cadence
        except (CordeeError, OSError, ValueError):
            pass  # a file that is on its way or damaged: the page says among what is missing why samples are not read
        return dict(self._newest)

    def _values(self) -> dict[str, list[float]]:
        """Return `{name: [step, time, mean over ranks]}` of what ranks logged last; step -1 where they gave none."""
        try:
            with self._reading.run() as run:
                events = run.last_events()
        except (CordeeError, OSError, ValueError):
            events = []
        for event in events:
            for name, value in event.values.items():
                if name.startswith(OWN) or (name not in self._logged and len(self._logged) >= _MOST_NAMES):
                    continue
                step = -1 if event.step is None else event.step
                known, ranks = self._logged.get(name, (step, {}))
                if step != known:
                    ranks = {}
                ranks[event.rank] = (event.time, value)
                self._logged[name] = (step, ranks)
        return {name: _mean(step, ranks) for name, (step, ranks) in self._logged.items()}


def _mean(step: int, ranks: dict[int, tuple[float, float]]) -> list[float]:
    values = [value for _, value in ranks.values() if math.isfinite(value)]
    mean = sum(values) / len(values) if values else math.nan
    return [step, max(moment for moment, _ in ranks.values()), mean]


def _tag(content: Any) -> str:
    return hashlib.blake2b(repr(content).encode(), digest_size=6).hexdigest()
