"""What is in a squashfs is read back and held against what went in, before anybody trusts the file.

mksquashfs can write wrong bytes, seldom and without a word (plougher/squashfs-tools, issues 273 and 405); with 4.5.1 one module
of 40,000 files was seen that could not be loaded.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import zlib
from collections import Counter
from typing import IO

from cordee.machine.squashfs.errors import PackError

# A file in the listing of `unsquashfs -pf`: its name, R, time, mode, uid, gid, then its length and where its bytes begin.
_FILE = re.compile(rb" R -?\d+ [0-7]+ \d+ \d+ (\d+) (\d+)(?: [01])?$")
_DATA = b"# START OF DATA - DO NOT MODIFY\n"
_CHUNK = 1 << 20

# (bytes, CRC-32) of every file that is not empty, with how many are alike.
Contents = Counter[tuple[int, int]]


def contents_of(file: int) -> Contents | None:
    """Return what is in the squashfs open as the descriptor `file`; None: this unsquashfs cannot tell (before 4.5).

    Raises:
        PackError: it cannot be read.
    """
    program = shutil.which("unsquashfs")
    if program is None:
        return None
    argv = [program, "-no-progress", "-quiet", "-pf", "/dev/stdout", f"/proc/self/fd/{file}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[file]) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            found = _read(child.stdout)
        finally:
            child.kill()
        words = child.stderr.read().decode(errors="replace").strip()
    if found is None and "invalid option" in words:
        return None
    if found is None:
        raise PackError(f"what was written cannot be read back: {words[-300:] or 'it is cut off'}", next="pack again")
    return found


def _read(stream: IO[bytes]) -> Contents | None:
    """Return the contents of a listing with data behind it; None: it is not whole."""
    places: list[tuple[int, int]] = []
    for line in stream:
        if line == _DATA:
            break
        match = _FILE.search(line)
        if match:
            places.append((int(match[2]), int(match[1])))
    else:
        return None
    stream.readline()  # one more sign of a comment
    found: Contents = Counter()
    at = 0
    for offset, length in sorted(place for place in places if place[1]):
        if offset != at:
            return None
        at += length
        check, left = 0, length
        while left:
            data = stream.read(min(left, _CHUNK))
            if not data:
                return None
            check, left = zlib.crc32(data, check), left - len(data)
        found[length, check] += 1
    return found
