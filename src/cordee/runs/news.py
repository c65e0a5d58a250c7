"""What is new in a run, told in one small file, so that those who wait look at one file and not at all of them.

`control/news` is written in place by the run's supervisor, a few times a second at most, and kept open by those who look: a look
is one read, whatever the number of nodes. It only says where there is something new; the truth stands where it always does.
A header of 12 bytes, little-endian: magic u32, length u32, CRC-32 u32 of what follows: JSON of `RunNews`.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from cordee.machine.foreign_files import parse_json, regular_below

_HEAD = struct.Struct("<III")
_MAGIC = 0xC0DE4E57
_MOST_BYTES = 4 << 20


class RunNews(NamedTuple):
    """Numbers that grow with what is new; they are compared with those of the look before and mean nothing else.

    Attributes:
        epoch: of the supervisor that tells.
        marks: events in the journal, without those that only say how far the ranks are.
        journal: events in the journal.
        telemetry: bytes of samples and of what ranks logged.
        logs: bytes of output by the log file's name.
        ending: whether the run, or its segment, comes to its end: what is marked now is what everybody waits for.
    """

    epoch: int
    marks: int
    journal: int
    telemetry: int
    logs: dict[str, int]
    ending: bool = False


def news_file(root: Path) -> Path:
    """Return where a run's news stand."""
    return root / "control" / "news"


class NewsWriter:
    """Tells the news of a run; a disk that refuses is passed over, as those who look come by without news, only later.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._told: RunNews | None = None

    def tell(self, news: RunNews) -> bool:
        """Write what is new; return whether there was anything, and the disk took it."""
        if news == self._told:
            return False
        text = json.dumps(news._asdict(), separators=(",", ":")).encode()
        try:
            if self._descriptor is None:
                flags = os.O_WRONLY | os.O_CREAT
                self._descriptor = regular_below(self._path.parent.parent)(self._path, flags)
            os.pwrite(self._descriptor, _HEAD.pack(_MAGIC, len(text), zlib.crc32(text)) + text, 0)
            os.fdatasync(self._descriptor)
        except OSError:
            self.close()
            return False
        self._told = news
        return True

    def close(self) -> None:
        """Let the file go."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)


class NewsReader:
    """Reads the news of a run, from a file that is kept open.

    Args:
        root: the run's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._descriptor: int | None = None

    @property
    def open(self) -> bool:
        """Whether a look costs no more than a read."""
        return self._descriptor is not None

    @property
    def age_s(self) -> float:
        """How long ago the news that are open were written."""
        return 0.0 if self._descriptor is None else time.time() - os.fstat(self._descriptor).st_mtime

    def read(self) -> RunNews | None:
        """Return the news; None where a run tells none (yet), or they are being written right now."""
        try:
            if self._descriptor is None:
                self._descriptor = regular_below(self._root)(news_file(self._root), os.O_RDONLY)
            data = os.pread(self._descriptor, 1 << 16, 0)
            magic, length, crc = _HEAD.unpack_from(data)
            end = _HEAD.size + length
            if magic != _MAGIC or length > _MOST_BYTES:
                return None
            if end > len(data):
                data += os.pread(self._descriptor, end - len(data), len(data))
            text = data[_HEAD.size : end]
            return _parsed(parse_json(text)) if zlib.crc32(text) == crc else None
        except OSError:
            self.close()
            return None
        except (struct.error, ValueError, KeyError, TypeError, AttributeError):
            return None

    def close(self) -> None:
        """Let the file go; the next `read` opens it again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def _parsed(document: dict[str, Any]) -> RunNews:
    epoch, marks, journal, telemetry = (int(document[name]) for name in ("epoch", "marks", "journal", "telemetry"))
    logs = {str(name): int(size) for name, size in document["logs"].items()}
    return RunNews(epoch, marks, journal, telemetry, logs, bool(document.get("ending")))
