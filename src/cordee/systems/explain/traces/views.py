"""The traces of a run, as commands, pages and reports list them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.draw.clean import one_line
from cordee.core.units import format_size
from cordee.machine.foreign_files import parse_json, read_regular

_FILE_BYTES = 4 << 20
_MOST_PROFILES = 1000


class KeptTrace(NamedTuple):
    """One file of a profile.

    Attributes:
        profile: its number in the run; `rank`: whose it is.
        path: in the run's folder.
        window: the steps that it shows, in words; empty where it shows seconds.
    """

    profile: int
    attempt: int
    rank: int
    tool: str
    path: str
    bytes: int
    window: str

    def line(self) -> str:
        """Return it as one line."""
        of = f", {self.window}" if self.window else ""
        return f"profile {self.profile}: rank {self.rank} by {self.tool}{of}: {self.path} ({format_size(self.bytes)})"


def traces_of(run: Path) -> list[KeptTrace]:
    """Return the traces that lie in a run's folder, the newest profile first; what cannot be read is passed over."""
    try:
        names = [path.name for path in (run / "profiles").iterdir()]
    except OSError:
        return []
    numbers = sorted((int(name) for name in names if name.isdecimal() and len(name) < 7), reverse=True)
    return [one for number in numbers[:_MOST_PROFILES] for one in _of_profile(run, number)]


def profile_document(path: Path) -> dict[str, Any] | None:
    """Return a `profile.json`, None where it cannot be read."""
    try:
        told = parse_json(read_regular(path, limit_bytes=_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def window_text(about: dict[str, Any]) -> str:
    """Return which steps a trace shows; empty where it shows none."""
    steps, before = _whole(about.get("steps")), _whole(about.get("before"))
    if not steps or before is None:
        return ""
    return f"steps {before + 1} to {before + steps}" if steps > 1 else f"step {before + 1}"


def _of_profile(run: Path, number: int) -> list[KeptTrace]:
    folder = run / "profiles" / str(number)
    told = profile_document(folder / "profile.json") or {}
    ranks, attempt = told.get("ranks"), told.get("attempt")
    found = []
    for about in ranks if isinstance(ranks, list) else []:
        if not (isinstance(about, dict) and about.get("state") == "written"):
            continue
        rank = _whole(about.get("rank"))
        name = str(about.get("file", ""))
        if rank is None or "/" in name or not (folder / name).is_file():
            continue
        size = (folder / name).stat().st_size
        told_by = one_line(told.get("tool", ""), 20)
        path = f"profiles/{number}/{one_line(name, 100)}"
        found.append(KeptTrace(number, _whole(attempt) or 0, rank, told_by, path, size, window_text(about)))
    return sorted(found, key=lambda one: one.rank)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
