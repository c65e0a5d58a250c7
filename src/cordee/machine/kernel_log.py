"""The kernel's log of this boot, from wherever it may be read: /dev/kmsg, dmesg, the journal, or a log file."""

from __future__ import annotations

import datetime
import os
import re
import stat
import subprocess
import time
from typing import Callable, NamedTuple, Optional

_MOST_BYTES = 16 << 20
# Lines that a follower reads at a time, and about the bytes that they have.
_MOST_AT_ONCE, _MOST_AT_ONCE_BYTES = 256, 32 << 10
_COMMAND_PATIENCE_S = 5.0
_SLACK_S = 60.0  # clocks that were set after the start
_FILES = ("var/log/kern.log", "var/log/messages", "var/log/syslog")
_KMSG = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")
_SINCE_BOOT = re.compile(r"(?:<\d+>)?\[\s*(\d+\.\d+)\]\s?(.*)")
_UNIX = re.compile(r"(\d{9,}\.\d+)\s+\S+\s+(.*)")
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)(Z|[+-]\d\d:?\d\d)?\s+\S+\s+(.*)")
_TRADITIONAL = re.compile(r"([A-Z][a-z]{2}\s+\d+ \d\d:\d\d:\d\d)\s+\S+\s+(.*)")


class KernelLogClosed(Exception):
    """The log cannot be read; the text says what was tried."""


class KernelLine(NamedTuple):
    """One line, and how long ago it was written; None: it does not say."""

    text: str
    age_s: Optional[float]


class KernelLog(NamedTuple):
    """Lines of this boot, oldest first, and where they are from.

    Attributes:
        reaches_s: age of the oldest line that was kept there: earlier ones may be lost; None: not told.
        uptime_s: how long ago the node was started; None: not told.
    """

    lines: list[KernelLine]
    source: str
    reaches_s: Optional[float]
    uptime_s: Optional[float]


def read_kernel_log(root: str = "/") -> KernelLog:
    """Return the log of this boot.

    Args:
        root: where the host's files are seen; commands are asked only where that is `/`.

    Raises:
        KernelLogClosed: no source may be read, or all are empty.
    """
    uptime_s = _uptime_s(root)
    sources: list[tuple[str, Callable[[], list[str]]]] = [
        (os.path.join(root, "dev/kmsg"), lambda: _kmsg(os.path.join(root, "dev/kmsg")))
    ]
    if os.path.realpath(root) == "/":
        sources.append(("dmesg", lambda: _command(["dmesg"])))
        journal = ["journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-unix", "-n", "50000"]
        sources.append(("journalctl", lambda: _command(journal)))
    for name in _FILES:
        path = os.path.join(root, name)
        sources.append((path, lambda path=path: _tail(path)))  # type: ignore[misc]
    reasons = []
    for name, read in sources:
        try:
            content = read()
        except OSError as error:
            reasons.append(f"{name}: {error.strerror or error}")
            continue
        every = [_parse(line, uptime_s) for line in content]
        lines = [line for line in every if line.age_s is None or uptime_s is None or line.age_s <= uptime_s + _SLACK_S]
        if lines:
            ages = [line.age_s for line in every if line.age_s is not None]
            return KernelLog(lines, name, max(ages, default=None), uptime_s)
        reasons.append(f"{name}: {'has no line of this boot' if every else 'is empty'}")
    raise KernelLogClosed("the kernel log cannot be read: " + "; ".join(reasons))


class KernelLogTail:
    """Lines that are written from now on, as they come.

    Args:
        root: where the host's files are seen.

    Attributes:
        source: what is read.
        passed_over: whether lines came so fast that some were not read.

    Raises:
        KernelLogClosed: neither /dev/kmsg nor a log file may be read.
    """

    def __init__(self, root: str = "/") -> None:
        self.passed_over = False
        reasons = []
        for name in ("dev/kmsg", *_FILES):
            self.source = os.path.join(root, name)
            try:
                self._open()
                self._offset = os.lseek(self._file, 0, os.SEEK_END)
            except OSError as error:
                reasons.append(f"{self.source}: {error.strerror or error}")
                continue
            return
        raise KernelLogClosed("the kernel log cannot be read: " + "; ".join(reasons))

    def new_lines(self) -> list[str]:
        """Return the texts of the lines since the last call, without their times; of a flood the first ones.

        Raises:
            OSError: it cannot be read any more.
        """
        content = self._records() if self._device else self._appended()
        return [_parse(line, None).text for line in content.decode(errors="replace").splitlines() if line[:1] != " "]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _open(self) -> None:
        self._file = os.open(self.source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._device = stat.S_ISCHR(os.fstat(self._file).st_mode)

    def _records(self) -> bytes:
        records = []
        for _ in range(_MOST_AT_ONCE):
            try:
                records.append(os.read(self._file, 8192))
            except BlockingIOError:
                return b"".join(records)
            except BrokenPipeError:  # the oldest record was overwritten meanwhile
                self.passed_over = True
        self.passed_over = True
        os.lseek(self._file, 0, os.SEEK_END)
        return b"".join(records)

    def _appended(self) -> bytes:
        there, mine = os.stat(self.source), os.fstat(self._file)
        if (there.st_ino, there.st_dev) != (mine.st_ino, mine.st_dev):
            os.close(self._file)
            self._open()
            self._offset = 0
        elif there.st_size < self._offset:  # it was emptied
            self._offset = 0
        if there.st_size == self._offset:
            return b""
        content = os.pread(self._file, _MOST_AT_ONCE_BYTES, self._offset)
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        if len(content) == _MOST_AT_ONCE_BYTES:
            self.passed_over, self._offset = True, os.lseek(self._file, 0, os.SEEK_END)
        return whole


def _uptime_s(root: str) -> Optional[float]:
    try:
        with open(os.path.join(root, "proc/uptime")) as file:
            return float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _kmsg(path: str) -> list[str]:
    """Return the records of /dev/kmsg, which gives one at each reading and never ends, or of a file like it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISCHR(os.fstat(descriptor).st_mode):
            return _tail(path)
        records, size = [], 0
        while size < _MOST_BYTES:
            try:
                part = os.read(descriptor, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the oldest record was overwritten meanwhile
                continue
            if not part:
                break
            size += len(part)
            records.append(part.decode(errors="replace").partition("\n")[0])
        return records
    finally:
        os.close(descriptor)


def _tail(path: str) -> list[str]:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _MOST_BYTES))
        return [line for line in file.read().decode(errors="replace").splitlines() if line and not line.startswith(" ")]


def _command(argv: list[str]) -> list[str]:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_COMMAND_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"did not end within {_COMMAND_PATIENCE_S:g} s") from None
    if done.returncode:
        words = " ".join(done.stderr.decode(errors="replace").split())[:200]
        raise OSError(words or f"ended with {done.returncode}")
    return [line for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]


def _parse(line: str, uptime_s: Optional[float]) -> KernelLine:
    """Return the text and age of a line in any of the forms that logs have."""
    found = _KMSG.match(line)
    if found:
        return KernelLine(found[2], _since_boot(int(found[1]) / 1e6, uptime_s))
    found = _SINCE_BOOT.match(line)
    if found:
        return KernelLine(found[2], _since_boot(float(found[1]), uptime_s))
    now = time.time()
    found = _UNIX.match(line)
    if found:
        return KernelLine(found[2], max(0.0, now - float(found[1])))
    found = _ISO.match(line)
    if found:
        written = datetime.datetime.strptime(found[1].replace(",", ".")[:19].replace("T", " "), "%Y-%m-%d %H:%M:%S")
        zone = (found[2] or "").replace(":", "")
        if zone:
            offset = datetime.datetime.strptime("+0000" if zone == "Z" else zone, "%z").tzinfo
            written = written.replace(tzinfo=offset)
        return KernelLine(found[3], max(0.0, now - written.timestamp()))
    found = _TRADITIONAL.match(line)
    if found:
        return KernelLine(found[2], _age_without_year(found[1], now))
    return KernelLine(line, None)


def _since_boot(written_s: float, uptime_s: Optional[float]) -> Optional[float]:
    return None if uptime_s is None else max(0.0, uptime_s - written_s)


def _age_without_year(text: str, now: float) -> Optional[float]:
    year = time.localtime(now).tm_year
    for candidate in (year, year - 1):
        try:
            written = datetime.datetime.strptime(
                f"{candidate} {' '.join(text.split())}", "%Y %b %d %H:%M:%S"
            ).timestamp()
        except ValueError:  # the 29th of February of another year
            continue
        if written <= now + 86400:
            return max(0.0, now - written)
    return None
