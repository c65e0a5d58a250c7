"""What has changed in a run, looked up again and again at little cost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from cordee.errors import CordeeError
from cordee.web.reading import Reading

_MOST_NAMES = 200


@dataclass
class Look:
    """What is true of a run now: for each kind of event a tag that changes with it, and its content; all findings."""

    kinds: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)


class Follower:
    """Looks at a run, reading only what is new.

    Args:
        reading: the run, which others may read meanwhile.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._logged: dict[str, tuple[int, dict[int, tuple[float, float]]]] = {}

    def look(self) -> Look:
        """Return what is true now."""
        state, fault = self._reading.state()
        document = {
            "state": state.state,
            "text": fault.text if fault else state.text,
            "attempt": state.attempt,
            "restarts": state.restarts,
            "segments": state.segments,
            "step": state.step,
            "total": state.total,
            "version": self._reading.journal.version,
            "now": time.time(),
        }
        look = Look({"state": (f"{self._reading.journal.version}:{state.state}:{bool(fault)}", document)})
        look.findings = [finding.document() for finding in state.findings]
        samples = self._samples()
        if samples:
            look.kinds["samples"] = (str(sorted(samples.items())), samples)
        logged = self._news()
        if logged:
            look.kinds["logged"] = (str(sorted((name, row[0], row[1]) for name, row in logged.items())), logged)
        return look

    def _samples(self) -> dict[str, float]:
        """Return the time of the newest sample by group."""
        found: dict[str, float] = {}
        try:
            with self._reading.run() as run:
                for group in run.groups():
                    metric = next(iter(run.metrics(group)))
                    times = run.grid(group, [metric], start=time.time() - 60).times
                    if len(times):
                        found[group] = float(times[-1])
        except CordeeError:
            pass
        return found

    def _news(self) -> dict[str, list[float]]:
        """Return `{name: [step, time, mean over ranks]}` of what ranks logged last."""
        with self._reading.run() as run:
            events = run.last_events()
        for event in events:
            for name, value in event.values.items():
                if name not in self._logged and len(self._logged) >= _MOST_NAMES:
                    continue
                step = -1 if event.step is None else event.step
                newest, ranks = self._logged.get(name, (step, {}))
                if step != newest or step < 0:
                    ranks = {} if step != newest else ranks
                ranks[event.rank] = (event.time, value)
                self._logged[name] = (step, ranks)
        return {
            name: [step, max(at for at, _ in ranks.values()), sum(value for _, value in ranks.values()) / len(ranks)]
            for name, (step, ranks) in self._logged.items()
        }
