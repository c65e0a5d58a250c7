"""Some steps of this process in a trace of torch.profiler, when its agent asks: armed once, at work for its window, then gone.

A profiler belongs to the thread that starts it: steps are traced by the main thread, between two steps of an optimizer, a span of
time by the pulse thread for all threads. torch crashes where two profilers meet in one process, or where one is at work when the
interpreter ends: so this one never begins beside the script's own, gives way to it, and ends before the interpreter does.
"""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Optional

from cordee.wire.pulse import ARMED, EXTRAS, NOT_TRACED, TRACE, TRACED, TRACED_WHOLE, TRACING, TraceAnswer, TraceOrder

_WAITS_S = 5.0
_MOST_AHEAD_MS = 10_000  # what is later is the clock of another node that is wrong
_OWN = "the script's own torch.profiler is at work: ask again when it has ended"
_GAVE_WAY = "the script has started its own torch.profiler, which goes first: ask again when it has ended"


class StepTracer:
    """One order, from its arrival to its answer; never raises. `step` is called where optimizers step, all else by the pulse thread.

    Args:
        order: what the agent wants.
        stem: beginning of the names of the files that are written.
        made: the optimizer steps that were made until now.
        wake: set when the pulse thread has something to do.

    Attributes:
        answer: how far it is.
    """

    def __init__(self, order: TraceOrder, stem: str, made: int, wake: Any) -> None:
        self._order, self._stem = order, stem
        self._until = time.monotonic() + order.patience_ms / 1000
        self._lock = threading.Lock()
        self._profiler: Any = None
        self._thread = self._starts = self._optimizer = 0
        self._marks: list[int] = []
        self._ends_at: Optional[float] = None
        self._whole = self._elsewhere = False
        self._prepare: Optional[Callable[..., Any]] = None
        self.answer, self._wake = TraceAnswer(ARMED, 0, made, order.number), wake
        for ending in (TRACE, TRACED):
            with suppress(OSError):
                os.unlink(stem + ending)
        with self._lock:
            self._try(self._arm)

    @property
    def over(self) -> bool:
        """Whether there is nothing more to do."""
        return self.answer.state in (TRACED_WHOLE, NOT_TRACED) and self._profiler is None

    def pause_s(self, most_s: float) -> float:
        """Return in how many seconds `look` has something to do, but no more than this."""
        return most_s if self._ends_at is None else max(0.0, min(most_s, self._ends_at - time.monotonic()))

    def step(self, optimizer: Any, made: int) -> None:
        """An optimizer has made its step; `made` counts those of all optimizers."""
        if threading.get_ident() != threading.main_thread().ident:
            self._elsewhere = True
        elif self._order.steps:
            with self._lock:
                self._try(lambda: self._step(id(optimizer), made))

    def look(self, asked: int, made: int) -> None:
        """Give up what takes too long or is wanted no more, end a span of time, write what was traced.

        Args:
            asked: the number of the order that stands in the pulse now.
            made: the optimizer steps that were made until now.
        """
        with self._lock:
            self._try(lambda: self._look(asked, made))

    def end(self) -> None:
        """The interpreter ends: have no profiler at work in this thread. What is whole is still written."""
        if self._lock.acquire(timeout=1.0):  # which another thread may hold for ever in a child of a fork
            try:
                if not self._whole:
                    self._refuse("the process has ended before")
                    self._drop()
            finally:
                self._lock.release()

    def _arm(self) -> None:
        self._guard()
        if _others_at_work():
            self._refuse(_OWN)
        elif not self._order.steps:
            self._begin(self.answer.before)
            self._ends_at = time.monotonic() + self._order.window_ms / 1000

    def _step(self, optimizer: int, made: int) -> None:
        state = self.answer.state
        if state == ARMED:
            if 0 < self._order.begin_ms - time.time() * 1000 < _MOST_AHEAD_MS:
                return
            self._optimizer = optimizer
            self._begin(made)
        elif state == TRACING and optimizer == self._optimizer and not self._whole:
            self._marks.append(time.time_ns())
            self.answer = self.answer._replace(steps=len(self._marks) - 1)
            if self.answer.steps >= self._order.steps:
                self._stop()
        elif state == NOT_TRACED:
            self._drop()

    def _look(self, asked: int, made: int) -> None:
        if self.answer.state == TRACING and self._ends_at is not None and time.monotonic() >= self._ends_at:
            self.answer = self.answer._replace(steps=made - self.answer.before)
            self._stop()
        if self._whole and self._profiler is not None:
            self._write()
        elif self.answer.state in (ARMED, TRACING) and asked != self._order.number:
            self._refuse("nobody waits for it any more")
        elif self.answer.state in (ARMED, TRACING) and self._order.steps and time.monotonic() > self._until:
            self._refuse(self._too_late())
        if self.answer.state == NOT_TRACED:
            self._drop()

    def _begin(self, made: int) -> None:
        """Start the profiler in this thread."""
        if getattr(_torch(), "_is_profiler_enabled", False):
            self._refuse(_OWN)
            return
        self._thread = self._starts = threading.get_ident()
        profiler = _profiler(self._order)
        try:
            profiler.start()
        finally:
            self._starts = 0
        self._profiler = profiler
        self._marks.append(time.time_ns())
        self.answer = self.answer._replace(state=TRACING, before=made)

    def _stop(self) -> None:
        """Stop the profiler in the thread that has started it; what it holds is written by the pulse thread."""
        self._profiler.stop()
        self._unguard()
        self._whole, self._ends_at = True, None
        self._wake.set()

    def _drop(self) -> None:
        """Stop a profiler whose trace is not wanted; one of another thread is stopped there."""
        if self._profiler is None or self._thread == threading.get_ident():
            profiler, self._profiler = self._profiler, None
            self._unguard()
            if profiler is not None and not self._whole:
                profiler.stop()

    def _write(self) -> None:
        """Write the trace beside the pulse, in the pulse thread."""
        profiler, self._profiler = self._profiler, None
        profiler.export_chrome_trace(self._stem + TRACE)
        self._tell({"marks_ns": self._marks if self._order.steps else []})
        self.answer = self.answer._replace(state=TRACED_WHOLE)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # whatever it is, the training goes on
            self._refuse(f"torch.profiler fails: {type(error).__name__}: {error}")

    def _refuse(self, why: str) -> None:
        """Say why there is no trace, once. A profiler that is at work is stopped by its own thread, at its next step."""
        if self.answer.state in (ARMED, TRACING):
            with suppress(OSError):
                self._tell({"why": why[:1000]})
            self.answer = self.answer._replace(state=NOT_TRACED)
            self._wake.set()

    def _tell(self, told: dict[str, Any]) -> None:
        with open(self._stem + TRACED, "w") as file:
            json.dump(told, file)

    def _too_late(self) -> str:
        if self.answer.state == TRACING:
            return f"it has made only {self.answer.steps} of {self._order.steps} steps in the time that was given"
        if self._elsewhere:
            return "its optimizer steps in another thread than the main one: ask for --seconds"
        return "it has made no step of a torch optimizer in the time that was given: ask for --seconds, or give more with --wait"

    def _guard(self) -> None:
        """Learn of profilers that the script starts from now on, before they are: they must find no other one at work."""
        prepare = self._prepare = _torch()._prepare_profiler

        def prepared(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._starts:
                self._give_way()
            return prepare(*args, **kwargs)

        _torch()._prepare_profiler = prepared

    def _unguard(self) -> None:
        if self._prepare is not None:
            _torch()._prepare_profiler, self._prepare = self._prepare, None

    def _give_way(self) -> None:
        """Have this profiler stopped before another one begins: by its own thread, for which another waits a while."""
        with self._lock:
            if not self._whole:
                self._refuse(_GAVE_WAY)
                self._try(self._drop)
        until = time.monotonic() + _WAITS_S
        while self._profiler is not None and not self._whole and time.monotonic() < until:
            time.sleep(0.01)
        with self._lock:
            if not self._whole:  # torch forgets it when the other begins, and to stop it then would stop the other
                self._profiler = None
                self._unguard()


def _profiler(order: TraceOrder) -> Any:
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import _KinetoProfile

    shapes, stacks, memory = (bool(order.extras & EXTRAS[name]) for name in ("shapes", "stacks", "memory"))
    config = _ExperimentalConfig() if order.steps else _ExperimentalConfig(profile_all_threads=True)
    if hasattr(config, "trace_only") and not stacks:
        config.trace_only = True  # nothing is made of what was recorded but the file
    return _KinetoProfile(record_shapes=shapes, profile_memory=memory, with_stack=stacks, experimental_config=config)


def _torch() -> Any:
    import torch.autograd.profiler

    return torch.autograd.profiler


def _others_at_work() -> bool:
    """Return whether the script's own profiler is at work, or warms up for it, which its object alone shows."""
    module = _torch()
    if getattr(module, "_is_profiler_enabled", False):
        return True
    tracker = getattr(module, "KinetoStepTracker", None)
    if "ProfilerStep" not in getattr(tracker, "_step_dict", ("ProfilerStep",)):
        return False  # which it is in, as long as there is a profiler with a schedule
    found = [one for one in gc.get_objects() if type(one) is module.profile]
    return any(getattr(one, "entered", False) and getattr(one, "kineto_results", None) is None for one in found)
