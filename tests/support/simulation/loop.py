"""An event loop in virtual time, and processes on it that can be killed, paused and signalled between two callbacks."""

from __future__ import annotations

import asyncio
import heapq
import signal
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from cordee.core.errors import CordeeError

T = TypeVar("T")
EPOCH_S = 1_800_000_000.0
_EXECUTOR_S = 0.001
_TICK_S = 1e-6
_MOST_AT_ONCE = 100_000
_here: ContextVar[VirtualProcess | None] = ContextVar("process", default=None)


class VirtualProcess:
    """What has a pid in a simulation: all callbacks and tasks that were begun in its context, and their descendants.

    Args:
        world: numbers processes, and is told of their ends.
        name: for the trace.
        main: what it runs; its end is the process' end.
        ended: called once, outside of any process, with (code, signal number).

    Attributes:
        alive, paused: nothing of a process that is not alive runs any more, and what is due in a paused one waits.
        held: it was killed, and the kernel lets it live for a while.
        starting: it has no event loop yet, and may wait for a disk.
        asleep: its thread stands still, by itself and for some time; what is due in it waits as well.
        waits_for_disks: each call on a disk takes it some time, in which it does nothing else, as a command does.
        clock_s: by how much its wall clock is ahead.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        name: str,
        main: Callable[[], Coroutine[Any, Any, int | None]],
        ended: Callable[[int | None, int | None], None] = lambda code, signal: None,
    ) -> None:
        loop.last_pid += 1
        self.loop, self.name, self.pid = loop, name, loop.last_pid
        self.alive, self.paused, self.asleep, self.held = True, False, False, False
        self.waits_for_disks = self.starting = False
        self.clock_s = 0.0
        self.handlers: dict[int, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
        self.at_end: list[Callable[[], None]] = []
        self.error: BaseException | None = None
        self._ended = ended
        self._held: list[_Handle | _TimerHandle] = []
        self.context: Context = copy_context()
        self.context.run(_here.set, self)
        loop.processes.append(self)
        self.tasks: list[asyncio.Task[Any]] = []
        self.context.run(loop.create_task, self._run(main))

    @staticmethod
    def here() -> VirtualProcess | None:
        """Return the process that runs now."""
        return _here.get()

    async def _run(self, main: Callable[[], Coroutine[Any, Any, int | None]]) -> None:
        code: int | None = 1
        try:
            code = await main() or 0
        except CordeeError as error:
            self.error, code = error, error.exit_code
        except Exception as error:
            self.error = error
        except BaseException as error:
            self.loop.interrupted_by(error)
            raise
        self.end(code, None)

    def end(self, code: int | None, number: int | None) -> None:
        """End now: by itself with a code, or by a signal."""
        if self.alive:
            self.alive = False
            self._held.clear()
            for act in self.at_end:
                act()
            self.loop.outside(self._ended, code, number)

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self.end(None, int(signal.SIGKILL))

    def signal(self, number: int) -> None:
        """Give it a signal: to its handler if it has one, else it ends; one that is paused gets it later."""
        if number == signal.SIGKILL:
            self.kill()
        elif number in self.handlers and self.alive:
            callback, arguments = self.handlers[number]
            self.loop.call_soon(callback, *arguments, context=self.context)
        elif self.alive:
            self.loop.call_soon(self.end, None, int(number), context=self.context)

    def pause(self) -> None:
        """Stop it, as SIGSTOP or a hung file system does."""
        self.paused = True

    def resume(self) -> None:
        """Let it go on: what was due meanwhile is done now, in its order."""
        self.paused = False
        self._do_what_was_held()

    def hold_killed(self, seconds: float) -> None:
        """It is killed, and the kernel lets it live for so long."""
        self.held = True
        self.loop.after(seconds, self.kill)

    def begin(self, make: Callable[[], T]) -> T:
        """Make what it runs, as a process does before it has an event loop."""
        self.starting = True
        try:
            return make()
        finally:
            self.starting = False

    def sleep(self, seconds: float) -> None:
        """Stand still in the midst of a callback while the others go on; who is killed meanwhile goes no further."""
        until = self.loop.now + seconds
        self.loop.after(seconds, str)
        self.asleep = True
        try:
            self.loop.go_on_while(lambda: self.alive and (self.paused or self.loop.now < until))
        finally:
            self.asleep = False
        if self.loop.is_ending or not self.alive:
            raise asyncio.CancelledError
        self._do_what_was_held()

    def _do_what_was_held(self) -> None:
        if not (self.paused or self.asleep):
            held, self._held = self._held, []
            self.loop.again(handle for handle in held if not handle.cancelled())

    def hold(self, handle: _Handle | _TimerHandle) -> None:
        """Keep what is due until it goes on."""
        self._held.append(handle)


class _Handle(asyncio.Handle):
    def __init__(self, callback: Any, args: Any, loop: Any, context: Context | None) -> None:
        super().__init__(callback, args, loop, copy_context() if context is None else context)
        self.process = self._context.get(_here)  # type: ignore[attr-defined]

    def _run(self) -> None:
        process = self.process
        if process is None or (process.alive and not (process.paused or process.asleep)):
            asyncio.Handle._run(self)  # type: ignore[attr-defined]
        elif process.alive:
            process.hold(self)


class _TimerHandle(asyncio.TimerHandle):
    def __init__(self, when: float, callback: Any, args: Any, loop: Any, context: Context | None) -> None:
        super().__init__(when, callback, args, loop, copy_context() if context is None else context)
        self.process = self._context.get(_here)  # type: ignore[attr-defined]

    _run = _Handle._run


class Stalled(Exception):
    """Nothing is left to happen, or things happen without an end while no time passes."""


class _Jump:
    """A selector that never waits: it moves the loop's clock to the next timer."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop, self._turns = loop, 0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stalled("nothing is left to happen")
        self._turns = self._turns + 1 if timeout <= 0 else 0
        if self._turns > _MOST_AT_ONCE:
            raise Stalled(f"no time passes after {self._loop.now:g} s")
        self._loop.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose clock jumps to the next timer.

    Attributes:
        now: virtual seconds since the beginning.
        unhandled: what callbacks raised that nobody took.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.last_pid = 100
        self.processes: list[VirtualProcess] = []
        self.unhandled: list[dict[str, Any]] = []
        self._selector = _Jump(self)
        self._clock_resolution = 1e-9
        self._outside = copy_context()
        self._interruption: BaseException | None = None
        self.set_exception_handler(self._not_handled)

    def time(self) -> float:
        """Return virtual seconds."""
        return self.now

    # What asyncio asks of a loop

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _call_soon(self, callback: Any, args: Any, context: Context | None) -> _Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        """See asyncio."""
        timer = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        """See asyncio."""
        least = (
            _TICK_S if delay > 0 else 0.0
        )  # a rest that rounding left of a wait must not be waited for again and again
        return self.call_at(self.now + max(delay, least), callback, *args, context=context)

    def create_task(self, coro: Any, **more: Any) -> Any:
        """See asyncio; the task is its process'."""
        task = super().create_task(coro, **more)
        process = _here.get()
        if process is not None:
            if len(process.tasks) > 50:
                process.tasks = [other for other in process.tasks if not other.done()]
            process.tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Do at once, a moment later, what would take a thread."""
        future = self.create_future()

        def work() -> None:
            if not future.done():
                try:
                    future.set_result(func(*args))
                except Exception as error:
                    future.set_exception(error)

        self.call_later(_EXECUTOR_S, work)
        return future

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:  # type: ignore[override]
        """Have the process that runs now take a signal."""
        process = _here.get()
        assert process is not None
        process.handlers[sig] = (callback, args)

    async def subprocess_exec(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        """Refuse: there is no document side here."""
        raise FileNotFoundError(2, "no such program in a simulation")

    def run_until_complete(self, future: Any) -> Any:
        """See asyncio; what interrupts this process, as a test's time-out does, is raised, whatever it came in."""
        try:
            return super().run_until_complete(future)
        except RuntimeError:
            if self._interruption is None:
                raise
            raise self._interruption from None

    def _not_handled(self, loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
        self.unhandled.append(about)
        self.interrupted_by(about.get("exception"))

    def interrupted_by(self, error: BaseException | None) -> None:
        """Stop, if this is no error of what is simulated."""
        if error is not None and not isinstance(error, (Exception, GeneratorExit, asyncio.CancelledError)):
            self._interruption = error
            self.stop()

    # What a simulation asks of it

    def lives(self, pid: int) -> bool:
        """Return whether a process is alive."""
        return any(process.pid == pid and process.alive for process in self.processes)

    def outside(self, callback: Callable[..., Any], *args: Any) -> None:
        """Call soon, in no process."""
        self.call_soon(callback, *args, context=self._outside)

    def after(self, seconds: float, callback: Callable[..., Any], *args: Any) -> None:
        """Call later, in no process."""
        self.call_later(seconds, callback, *args, context=self._outside)

    def again(self, handles: Any) -> None:
        """Do what was held."""
        self._ready.extend(handles)  # type: ignore[attr-defined]

    @property
    def is_ending(self) -> bool:
        """Whether this pass is the last one."""
        return bool(self._stopping)  # type: ignore[attr-defined]

    def go_on_while(self, wanted: Callable[[], bool]) -> None:
        """Do all that is due from within a callback, as long as something holds."""
        task = asyncio.current_task(self)
        mine = len(self._ready)  # type: ignore[attr-defined]
        if task is not None:
            asyncio.tasks._leave_task(self, task)  # type: ignore[attr-defined]
        try:
            while wanted() and not self.is_ending:
                self._run_once()  # type: ignore[attr-defined]
        finally:
            if task is not None:
                asyncio.tasks._enter_task(self, task)  # type: ignore[attr-defined]
        while len(self._ready) < mine:  # type: ignore[attr-defined]
            self.call_soon(str, context=self._outside).cancel()  # the pass that is under way has counted so many

    def bury(self) -> None:
        """End what is left of all processes without letting it do anything."""
        for process in self.processes:
            process.alive = False
        for process in self.processes:
            for task in process.tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if not task.done():
                    _close(task.get_coro())
            process.tasks = []
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.close()


def _close(coroutine: Any) -> None:
    """Close a coroutine whose `finally` may wait for something that never comes."""
    for _ in range(20):
        try:
            coroutine.close()
            return
        except RuntimeError:
            continue
        except BaseException:  # what is left of a killed process has no say
            return


class VirtualClocks:
    """What `cordee.core.clock` goes by in a simulation: the loop's time, and the wall clock of the process that runs.

    Args:
        loop: of the simulation.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        """Return virtual seconds."""
        return self._loop.now

    def time(self) -> float:
        """Return UTC epoch seconds."""
        process = _here.get()
        return EPOCH_S + self._loop.now + (process.clock_s if process is not None else 0.0)

    def sleep(self, seconds: float) -> None:
        """Have the process that runs now stand still."""
        process = _here.get()
        assert process is not None
        process.sleep(seconds)
