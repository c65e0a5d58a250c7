"""A thread in each rank that shows its agent, once a second, whether and where the rank goes on; where that is wanted, also what
it does with its time, for which it looks four times a second.

It is started after `torch` was imported, in scripts that know nothing of it, and costs some tens of microseconds a second. It
never raises into the script, keeps no process alive, and holds nothing that others wait for.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Optional

from cordee.client import recorders
from cordee.client.time_watch import TimeWatch
from cordee.wire.pulse import DUMP, FOLDER, STACKS, SUFFIX, WAKE, GroupProgress, PulseWriter

_EVERY_S = 1.0
_MOST_FRAMES = 64
_MOST_AT_END_S = 5.0
_MOST_FAILURES = 10  # in a row
_LEARNS_S = 3.0
_LEARNS_GROUPS_S = 5.0
_LIBRARIES = ("-packages/", "/lib/python3", "/lib64/python3", "node.zip/", "<frozen")
_RING = 2000  # collectives, which is torch's own number where the recorder is on
# Real-time signals that nobody is known to use, from the last downwards.
_SIGNALS = tuple(range(signal.SIGRTMAX - 3, signal.SIGRTMAX - 9, -1))
_started = False
_optimizer_steps = 0
_tracer: Any = None  # a StepTracer, while steps are to be traced


def begin() -> None:
    """Start the thread, once in a process; not in the daemons that `multiprocessing` starts, such as a data loader's workers."""
    global _started
    folder = os.environ.get(FOLDER)
    if _started or not folder:
        return
    _started = True
    _guarded(_have_recorded, None)
    _guarded(_count_optimizer_steps, None)
    threading.Thread(target=_run, args=(folder,), name="cordee-pulse", daemon=True).start()


def _have_recorded() -> None:
    """Have the Flight Recorder on, as it is by itself in newer versions of torch, unless the user has said how long its ring is."""
    import torch

    version = tuple(map(int, torch.__version__.split(".")[:2]))
    name = "TORCH_FR_BUFFER_SIZE" if version >= (2, 9) else "TORCH_NCCL_TRACE_BUFFER_SIZE"
    if not any(known in os.environ for known in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")):
        os.environ[name] = str(_RING)


def _count_optimizer_steps() -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def stepped(optimizer: Any, *_: Any) -> None:
        global _optimizer_steps
        _optimizer_steps += 1
        tracer = _tracer
        if tracer is not None:
            tracer.step(optimizer, _optimizer_steps)

    register_optimizer_step_post_hook(stepped)


def _is_worker() -> bool:
    """Return whether this is a daemon of `multiprocessing`; a process that it has started learns a moment later what it is."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is None or multiprocessing.parent_process() is None:
        return False
    time.sleep(_LEARNS_S)
    return bool(multiprocessing.current_process().daemon)


def _run(folder: str) -> None:
    try:
        if not _is_worker():
            _PulseThread(folder).run()
    except Exception:  # whatever it is: the training goes on without being watched
        return


class WakeUp:
    """What ends the sleep of the pulse's thread: another thread by `set`, or the agent by a byte in the FIFO.

    Args:
        path: of the FIFO; where there can be none, the agent is heard a second later.
    """

    def __init__(self, path: str) -> None:
        try:
            os.mkfifo(path, 0o600)
            self._reads = self._writes = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._reads, self._writes = os.pipe()
            os.set_blocking(self._reads, False)
            os.set_blocking(self._writes, False)

    def set(self) -> None:
        """End the sleep."""
        with suppress(BlockingIOError):
            os.write(self._writes, b"\0")

    def is_set(self) -> bool:
        """Return whether it has been ended."""
        return self.wait(0.0)

    def wait(self, seconds: float) -> bool:
        """Sleep; return whether that was ended."""
        poll = select.poll()
        poll.register(self._reads, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def clear(self) -> None:
        """Let the next sleep last."""
        with suppress(BlockingIOError):
            os.read(self._reads, 4096)


class _PulseThread:
    def __init__(self, folder: str) -> None:
        elastic = "TORCHELASTIC_RUN_ID" in os.environ and "TORCHELASTIC_RESTART_COUNT" in os.environ
        self._pulse = PulseWriter(folder, os.environ.get("CORDEE_ATTEMPT", "0"), elastic)
        self._times = TimeWatch(self._pulse, lambda: _optimizer_steps)
        self._stem = self._pulse.path[: -len(SUFFIX)]
        self._moves, self._stood = 0, 0
        self._stepped, self._learned_at = -1, 0.0
        self._main = threading.main_thread().ident
        self._dumped = self._traced = 0
        self._process, self._over = os.getpid(), False
        self._wake, self._ended = WakeUp(self._stem + WAKE), threading.Event()
        self._file = self._hear_signal()
        atexit.register(self._end)

    def run(self) -> None:
        """Beat until the process ends."""
        try:
            failures = 0
            while not self._over:
                try:
                    self._beat()
                    failures = 0
                except Exception:  # a library that is being imported: the next beat finds all of it
                    failures += 1
                    if failures > _MOST_FAILURES:
                        raise
                until = time.monotonic() + (_EVERY_S if _tracer is None else _tracer.pause_s(_EVERY_S))
                while not self._wake.is_set() and self._times.wanted() and time.monotonic() < until:
                    self._times.look()
                self._wake.wait(max(0.0, until - time.monotonic()))
                self._wake.clear()
            self._trace()
        finally:
            self._ended.set()

    def _end(self) -> None:
        """Ask torch for nothing more: a thread that comes back from C++ into an interpreter that is ending aborts the process."""
        self._over = True
        if _tracer is not None:
            _tracer.end()
        if os.getpid() == self._process:  # a child has no such thread
            self._wake.set()
            self._ended.wait(_MOST_AT_END_S)

    def _beat(self) -> None:
        stands, at = _place(self._main)
        if stands != self._stood:
            self._stood, self._moves = stands, self._moves + 1
        self._pulse.stands_at(at)
        self._pulse.beat(time.monotonic_ns(), _rank(), _optimizer_steps, self._moves, self._groups())
        self._times.beat(_distributed())
        asked = self._pulse.asked
        if asked != self._dumped:
            self._dumped = asked
            self._dump()
            self._pulse.dumped(asked)
        self._trace()

    def _groups(self) -> Optional[list[GroupProgress]]:
        """Return how far it is in its process groups: at each beat while it makes no steps, else now and then."""
        now = time.monotonic()
        stepped, self._stepped = _optimizer_steps != self._stepped, _optimizer_steps
        if stepped and now - self._learned_at < _LEARNS_GROUPS_S:
            return None
        self._learned_at = now
        return list(_guarded(_groups, []))

    def _trace(self) -> None:
        """Do what is wanted of a trace; nothing of it stays once it is over."""
        global _tracer
        order = self._pulse.trace_order
        if order.number not in (0, self._traced) and not self._over and _tracer is None:
            from cordee.client.tracing import StepTracer

            self._traced = order.number
            _tracer = StepTracer(order, self._stem, _optimizer_steps, self._wake)
        if _tracer is not None:
            _tracer.look(order.number, _optimizer_steps)
            self._pulse.traces(_tracer.answer)
            if _tracer.over:
                _tracer = None

    def _dump(self) -> None:
        """Write the Flight Recorder's dump beside the pulse, whole or not at all."""
        dump = _guarded(recorders.dump, b"")
        if dump:
            hidden = self._stem + ".writing"
            with open(hidden, "wb") as file:
                file.write(dump)
            os.rename(hidden, self._stem + DUMP)

    def _hear_signal(self) -> Any:
        """Have the stacks of all threads written at a signal, in C and whoever holds the interpreter's lock."""
        import faulthandler

        number = next((one for one in _SIGNALS if signal.getsignal(one) == signal.SIG_DFL), None)
        if number is None:
            return None
        file = open(self._stem + STACKS, "ab", buffering=0)  # noqa: SIM115 - it stays open: C code writes to it
        faulthandler.register(number, file, all_threads=True, chain=False)
        self._pulse.answers_to(number)
        return file


def _guarded(work: Callable[[], Any], otherwise: Any) -> Any:
    """Return what `work` does; `otherwise` where this torch is not as expected."""
    try:
        return work()
    except Exception:
        return otherwise


def _place(thread: Optional[int]) -> tuple[int, str]:
    """Return a number for where a thread stands, another one once it runs on; and the innermost line of no library's code."""
    frame, place, own = sys._current_frames().get(thread or 0), 0, None
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        place = hash((place, id(frame.f_code), frame.f_lasti))
        if own is None and not any(part in frame.f_code.co_filename for part in _LIBRARIES):
            own = frame
        frame = frame.f_back
    return place, f"{own.f_code.co_filename}:{own.f_lineno} ({own.f_code.co_name})" if own is not None else ""


def _distributed() -> Any:
    """Return torch.distributed where a process group is there, else None: also while another thread is importing it."""
    distributed: Any = sys.modules.get("torch.distributed")
    if not hasattr(distributed, "is_initialized") or not distributed.is_available():
        return None
    return distributed if distributed.is_initialized() else None


def _rank() -> int:
    distributed = _distributed()
    told = distributed.get_rank() if distributed is not None else os.environ.get("RANK", "0")
    rank: int = _guarded(lambda: max(0, int(told)), 0)
    return rank


def _groups() -> list[GroupProgress]:
    distributed = _distributed()
    return recorders.group_progress(distributed.distributed_c10d._world) if distributed is not None else []
