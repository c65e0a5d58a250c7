"""A rank that traces itself with torch.profiler: asked by words in its pulse file, see `cordee.client.tracing`."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from typing import Any, Iterator, Optional

from cordee.machine.foreign_files import parse_json, read_regular, regular
from cordee.machine.processes.table import read_process
from cordee.systems.explain.node.profile.rank_profile import READY, TRACING, RankProfile, compressed
from cordee.wire.pulse import ARMED, NOT_TRACED, SUFFIX, TRACE, TRACED, TRACED_WHOLE, PulseReader, TraceOrder
from cordee.wire.pulse import TRACING as STEPPING

_ANSWERS_S = 15.0
_RESERVE_S = 6.0
_MOST_RAW_BYTES = 4 << 30
_HEAD_BYTES = 1 << 20
_EVENTS = b'"traceEvents": ['
_BASE = re.compile(rb'"baseTimeNanoseconds": (\d{1,19})')
_UNWATCHED = "it shows no agent how far it is: it has not imported torch, or [hang] enabled is false"


class TorchTrace(RankProfile):
    """See the module and RankProfile."""

    def __init__(self, about: dict[str, Any], order: dict[str, Any]) -> None:
        super().__init__(about, order)
        self.name = f"rank-{self.rank}.json.gz"
        self._steps, self._stem = order["steps"], (about["pulse"] or "")[: -len(SUFFIX)]
        self._answers_until = time.monotonic() + _ANSWERS_S
        self._pulse: Optional[PulseReader] = None
        with suppress(OSError, ValueError):
            self._pulse = PulseReader(about["pulse"]) if about["pulse"] else None
        if self._pulse is None:
            self.fail(_UNWATCHED)
            return
        patience_ms = int(1000 * max(1.0, order["deadline_s"] - _RESERVE_S))
        number = self._pulse.trace_answer().number % (1 << 32) + 1
        window_ms, begin_ms = int(1000 * order["seconds"]), int(1000 * order["begin_at"])
        self._order = TraceOrder(self._steps, window_ms, begin_ms, patience_ms, order["extras"], number)
        self._pulse.order_trace(self._order)

    def look(self) -> None:
        assert self._pulse is not None or self.over
        if self._pulse is None:
            return
        process, answer = read_process("/proc", self.pid), self._pulse.trace_answer()
        has_ended = process is None or process.state in ("Z", "X")
        if answer.number == self._order.number and answer.state == TRACED_WHOLE:
            self.known = {"steps": answer.steps, "before": answer.before}
            self._check()
        elif answer.number == self._order.number and answer.state == NOT_TRACED:
            self.fail(self._said().get("why") or "it has failed, and could not say why: the node's memory may be full")
        elif has_ended:
            self.fail("it has ended before")
        elif answer.number == self._order.number and answer.state == STEPPING:
            said = f"step {answer.steps + 1} of {self._steps}" if self._steps else ""
            self.state, self.text = TRACING, said if answer.steps < self._steps else ""
        elif answer.number == self._order.number and answer.state == ARMED:
            self.text = "for the end of its step"
        elif process is not None and process.state in ("T", "t"):
            self.fail("it is stopped by a signal or a debugger")
        elif time.monotonic() > self._answers_until:
            self.fail("no thread of its interpreter has answered: C code holds the GIL, or a trace before is not over")

    def content(self) -> Iterator[bytes]:
        with open(self._stem + TRACE, "rb", opener=regular) as file:
            head = file.read(_HEAD_BYTES)
            before, events, after = head.partition(_EVENTS)
            marks = self._marks(_BASE.search(before))
            yield from compressed(file, before + events + marks + after if events else head)

    def close(self) -> None:
        if self._pulse is not None:
            self._pulse.order_trace(TraceOrder(0, 0, 0, 0, 0, 0))
            self._pulse.close()
            self._pulse = None
        for ending in (TRACE, f"{TRACE}.tmp", TRACED):
            with suppress(OSError):
                os.unlink(self._stem + ending)

    def fail(self, why: str) -> None:
        super().fail(why)
        if self._pulse is not None:
            self.close()

    def _check(self) -> None:
        """Look whether the file is whole: torch does not tell when the disk was full."""
        try:
            with open(self._stem + TRACE, "rb", opener=regular) as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - 100))
                is_whole = file.read().rstrip().endswith(b"}")
        except OSError as error:
            self.fail(f"its trace cannot be read: {error.strerror}")
            return
        if not is_whole:
            self.fail("its trace is not whole: the node's memory, where it is written first, may be full")
        elif size > _MOST_RAW_BYTES:
            self.fail(f"its trace has {size >> 20} MiB, more than {_MOST_RAW_BYTES >> 20} MiB: ask for fewer steps")
        else:
            self.state, self.text = READY, ""

    def _said(self) -> dict[str, Any]:
        try:
            said = parse_json(read_regular(self._stem + TRACED, limit_bytes=1 << 20))
        except (OSError, ValueError, RecursionError):
            return {}
        return said if isinstance(said, dict) else {}

    def _marks(self, base: Optional[re.Match[bytes]]) -> bytes:
        """Return the steps as events of the trace, in a row of their own: each begins within the optimizer's call before."""
        told = self._said().get("marks_ns")
        times = [at for at in told if type(at) is int] if isinstance(told, list) else []
        if len(times) < 2 or self._pulse is None:
            return b""
        since = int(base[1]) if base is not None else 0
        place = {"pid": self._pulse.read().pid, "tid": "steps"}
        row = {"ph": "M", "name": "thread_name", **place, "ts": 0, "args": {"name": "steps of the optimizer"}}
        marks = [
            {
                **{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{self.known['before'] + number}"},
                **place,
                "ts": (begin - since) / 1000,
                "dur": (end - begin) / 1000,
            }
            for number, (begin, end) in enumerate(zip(times, times[1:]), 1)
        ]
        return "".join(f"\n  {json.dumps(event)}," for event in [row, *marks]).encode()
