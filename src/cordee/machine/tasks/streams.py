"""What goes in and out of one task: through pipes, or through the pseudo terminal that it runs on."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import termios
from functools import lru_cache
from typing import Callable, Mapping, NamedTuple, Optional

from cordee.machine.processes.parent import die_with_parent
from cordee.machine.tasks.commands import find_command

STDOUT, STDERR = 0, 1
_CHUNK = 65536


class Spawned(NamedTuple):
    """A process that was started, and the terminal that it runs on, if it does."""

    process: subprocess.Popen[bytes]
    terminal: Optional[int]


def spawn(
    argv: tuple[str, ...],
    env: dict[str, str],
    cwd: str,
    *,
    reads: bool,
    terminal: Optional[tuple[int, int]],
    cpus: Optional[frozenset[int]],
) -> Spawned:
    """Start a process in a session of its own, which ends with this one.

    Args:
        argv, env, cwd: what runs where.
        reads: whether it gets a standard input.
        terminal: rows and columns of a pseudo terminal that it runs on, None for pipes.
        cpus: that it may use, None for all of this process.

    Raises:
        OSError, subprocess.SubprocessError, ValueError: it cannot be started.
    """
    parent = os.getpid()
    stdin: int = subprocess.PIPE if reads else subprocess.DEVNULL
    stdout = stderr = subprocess.PIPE
    master = slave = None

    def prepare() -> None:
        die_with_parent(parent)
        if cpus:
            os.sched_setaffinity(0, cpus)
        if slave is not None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    try:
        if terminal is not None:
            master, slave = os.openpty()
            _set_size(slave, *terminal)
            stdin = stdout = stderr = slave
        process = subprocess.Popen(
            find_command(argv, env, cwd),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=prepare,
        )
    except BaseException:
        if master is not None:
            os.close(master)
        raise
    finally:
        if slave is not None:
            os.close(slave)
    return Spawned(process, master)


# Ends with its parent from before the check on, so that none can be missed; `$0` is the parent's pid.
_WITH_PARENT = '[ "$PPID" = "$0" ] && exec "$@"'


@lru_cache(maxsize=1)
def _setpriv() -> Optional[str]:
    """Return the program by which a process ends with its parent without code between fork and exec, None where there is none."""
    found = shutil.which("setpriv")
    if found is None:
        return None
    tried = subprocess.run(
        [found, "--pdeathsig", "KILL", "--", "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return found if tried.returncode == 0 else None


def spawn_quickly(
    argv: tuple[str, ...], env: dict[str, str], cwd: str, cpus: Optional[frozenset[int]]
) -> Optional[Spawned]:
    """Start a process with pipes as `spawn` does, None where this machine cannot.

    Python's code between fork and exec, which asks the kernel to end the process with this one, needs a fork of the whole agent: 5 ms.
    Without it the process is a vfork, and setpriv asks.

    Raises:
        OSError, subprocess.SubprocessError, ValueError: it cannot be started.
    """
    setpriv = _setpriv()
    if setpriv is None:
        return None
    command = [
        setpriv,
        "--pdeathsig",
        "KILL",
        "--",
        "/bin/sh",
        "-c",
        _WITH_PARENT,
        str(os.getpid()),
        *find_command(argv, env, cwd),
    ]
    before = os.sched_getaffinity(0) if cpus else None
    try:
        if cpus:
            os.sched_setaffinity(0, cpus)  # of this thread alone; the child has it from the start
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)
    return Spawned(process, None)


class Readers:
    """What comes from descriptors, on the event loop: passed on as it comes once `pause` has said so; nothing here blocks.

    Whoever opened the descriptors closes them.

    Args:
        streams: what is read, by its descriptor.
        output: takes what comes: `output(stream, bytes)`.
        ended: called with a descriptor from which nothing more comes.
    """

    def __init__(
        self, streams: Mapping[int, int], output: Callable[[int, bytes], None], ended: Callable[[int], None]
    ) -> None:
        self._streams, self._output, self._ended = dict(streams), output, ended
        self._loop = asyncio.get_running_loop()
        for descriptor in self._streams:
            os.set_blocking(descriptor, False)

    def __bool__(self) -> bool:
        """Whether something may still come."""
        return bool(self._streams)

    def pause(self, paused: bool) -> None:
        """Stop or go on reading, which begins with this; pipes fill up and their writers wait, nothing is dropped."""
        for descriptor in self._streams:
            if paused:
                self._loop.remove_reader(descriptor)
            else:
                self._loop.add_reader(descriptor, self._read, descriptor)

    def close(self, drain: bool) -> list[int]:
        """Read no more and return the descriptors that had not ended; with `drain`, what is there already is passed on first."""
        left = list(self._streams.items())
        for descriptor, stream in left:
            self._loop.remove_reader(descriptor)
            while drain:
                try:
                    data = os.read(descriptor, _CHUNK)
                except OSError:
                    break
                if not data:
                    break
                self._output(stream, data)
        self._streams.clear()
        return [descriptor for descriptor, _ in left]

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""
        if data:
            self._output(self._streams[descriptor], data)
            return
        self._loop.remove_reader(descriptor)
        self._streams.pop(descriptor, None)
        self._ended(descriptor)


class TaskStreams:
    """The streams of one process, on the event loop; nothing here blocks.

    Args:
        spawned: the process.
        stdin: what it is given to read.
        keep_open: whether its standard input stays open after that.
        output: takes what it prints: `output(STDOUT or STDERR, bytes)`; a pseudo terminal's output is STDOUT.
        silent: called when nothing more can come.
    """

    def __init__(
        self,
        spawned: Spawned,
        stdin: Optional[bytes],
        keep_open: bool,
        output: Callable[[int, bytes], None],
        silent: Callable[[], None],
    ) -> None:
        self._process, self._terminal = spawned
        self._keep_open, self._silent = keep_open, silent
        self._loop = asyncio.get_running_loop()
        self._writing = stdin or b""
        self._stdin: Optional[int] = None
        if self._terminal is not None:
            streams = {self._terminal: STDOUT}
        else:
            assert self._process.stdout is not None
            assert self._process.stderr is not None
            streams = {self._process.stdout.fileno(): STDOUT, self._process.stderr.fileno(): STDERR}
        self._readers = Readers(streams, output, self._ended)
        if self._process.stdin is not None:
            self._stdin = self._process.stdin.fileno()
            os.set_blocking(self._stdin, False)
            self._loop.add_writer(self._stdin, self._write, self._stdin)

    @property
    def open(self) -> bool:
        """Whether something may still come."""
        return bool(self._readers)

    def pause(self, paused: bool) -> None:
        """Stop or go on reading; see Readers."""
        self._readers.pause(paused)

    def type(self, data: bytes) -> None:
        """Send bytes through the pseudo terminal, or the standard input that was kept open."""
        target = self._terminal if self._terminal is not None else self._stdin
        if target is not None:
            self._writing += data
            self._loop.add_writer(target, self._write, target)

    def resize(self, rows: int, columns: int) -> None:
        """Tell the pseudo terminal its size in characters."""
        if self._terminal is not None:
            _set_size(self._terminal, rows, columns)

    def close_stdin(self) -> None:
        """Close the standard input."""
        if self._process.stdin is None:
            return
        if self._stdin is not None:
            self._loop.remove_writer(self._stdin)
            self._stdin = None
        self._process.stdin.close()

    def close(self, drain: bool) -> None:
        """Close everything; with `drain`, what is there already is passed on first."""
        self._readers.close(drain)
        for writing in (self._stdin, self._terminal):
            if writing is not None:
                self._loop.remove_writer(writing)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        if self._terminal is not None:
            os.close(self._terminal)

    def _ended(self, descriptor: int) -> None:
        if not self._readers:
            self._silent()

    def _write(self, descriptor: int) -> None:
        try:
            self._writing = self._writing[os.write(descriptor, self._writing) :]
        except BlockingIOError:
            return
        except OSError:
            self._writing = b""
        if not self._writing:
            self._loop.remove_writer(descriptor)
            if descriptor == self._stdin and not self._keep_open:
                self.close_stdin()


def _set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
