"""Paths of an environment that are written in its own files: console scripts, activate scripts, pyvenv.cfg."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from cordee.machine.squashfs.entry import SquashfsEntry

_LARGEST_SCRIPT = 1 << 20
_ACTIVATE_PATH = re.compile(rb"""^\s*(?:export )?VIRTUAL_ENV=['"]?(/[^'"\n]+?)['"]?\s*$""", re.MULTILINE)
_SHEBANG = re.compile(rb"^#!\s*(/\S+?)/bin/python[\d.]*\b")


def made_at(folder: Path) -> list[Path]:
    """Return the paths that files of the environment may know it by: where it was made, where it is."""
    known = [folder.absolute(), folder.resolve()]
    try:
        known += [Path(path.decode()) for path in _ACTIVATE_PATH.findall((folder / "bin" / "activate").read_bytes())]
    except OSError:  # conda prefixes have none
        pass
    return list(dict.fromkeys(known))


def relocated(entries: list[SquashfsEntry], known: list[Path], at: Path) -> list[SquashfsEntry]:
    """Return the entries with every script and pyvenv.cfg naming `at` instead of any of `known`."""
    others = [bytes(path) for path in known if path != at]
    if not others:
        return entries
    # Longest first: one may begin like another. What follows ends the path or goes on below it.
    found = re.compile(rb"(?:" + b"|".join(map(re.escape, sorted(others, key=len, reverse=True))) + rb")(?![\w.-])")
    return [_relocated(entry, found, bytes(at)) if _may_name_it(entry) else entry for entry in entries]


def _may_name_it(entry: SquashfsEntry) -> bool:
    script = entry.name.startswith("bin/") and entry.name.count("/") == 1
    return entry.kind == "file" and entry.size <= _LARGEST_SCRIPT and (script or entry.name == "pyvenv.cfg")


def _relocated(entry: SquashfsEntry, found: re.Pattern[bytes], at: bytes) -> SquashfsEntry:
    data = text_of(entry)
    return entry if b"\0" in data[:1024] else with_data(entry, found.sub(lambda _: at, data))


def text_of(entry: SquashfsEntry) -> bytes:
    """Return the bytes of a file."""
    if entry.data is not None:
        return entry.data
    assert entry.source is not None
    return entry.source.read_bytes()


def with_data(entry: SquashfsEntry, data: bytes) -> SquashfsEntry:
    """Return the entry with other bytes."""
    return replace(entry, data=data, size=len(data), source=None) if data != entry.data else entry


def strange_shebangs(entries: list[SquashfsEntry], at: Path) -> list[tuple[str, str]]:
    """Return (script, environment) of console scripts that call the Python of another environment."""
    strange = []
    for entry in entries:
        if _may_name_it(entry) and entry.name != "pyvenv.cfg":
            match = _SHEBANG.match(text_of(entry)[:512])
            if match and Path(match[1].decode(errors="replace")) not in (at, Path("/usr")):
                strange.append((entry.name, match[1].decode(errors="replace")))
    return strange
