"""A collector's history on this machine: its files are fetched once each, and then read like any other folder."""

from __future__ import annotations

import hashlib
import os
import re
import urllib.parse
import urllib.request
from pathlib import Path

from cordee.core.errors import CordeeError
from cordee.machine.foreign_files import parse_json
from cordee.machine.tasks.actions import call, read_token
from cordee.runs.folder import write_atomically
from cordee.systems.vetting.fleet.history import LARGEST_BYTES, parse_vetting

_TIMEOUT_S = 30.0
_LIST_BYTES = 1_000_000
_AGAIN_DAYS = 7
_NAME = re.compile(r"\d{4}-\d{2}-\d{2}/[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,200}\.jsonl\Z")


def mirror_folder(url: str) -> Path:
    """Return the folder, in the user's cache, that holds what was fetched from a collector."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "cordee" / f"collector-{hashlib.sha256(url.encode()).hexdigest()[:16]}"


def fetch(url: str, token_file: str | None) -> Path:
    """Fetch what a collector has and this machine has not, and return the folder.

    The last seven days are asked for again, since vettings that waited in a spool arrive late.

    Raises:
        CordeeError: it was not reached, or refuses.
    """
    base, folder = url.rstrip("/") + "/v1/vettings", mirror_folder(url)
    try:
        token = read_token(token_file) if token_file else None
    except (OSError, ValueError) as error:
        raise CordeeError(f"the token cannot be read: {error}", given=token_file) from None
    days = sorted(path.name for path in folder.glob("????-??-??"))
    after, more = (days[-_AGAIN_DAYS] if len(days) >= _AGAIN_DAYS else ""), True
    while more:
        try:
            listing = parse_json(_get(f"{base}?after={urllib.parse.quote(after)}", token, _LIST_BYTES))
            names, goes_on = [name for name in listing["files"] if _NAME.match(name)], bool(listing["more"])
        except (ValueError, KeyError, TypeError) as error:
            raise CordeeError(f"the collector's answer is no list of vettings: {error!r}", given=base) from None
        for name in names:
            if not (folder / name).exists():
                _store(folder / name, _get(f"{base}/{name}", token, LARGEST_BYTES))
        more, after = bool(goes_on and names), names[-1] if names else after
    return folder


def _store(path: Path, content: bytes) -> None:
    try:
        parse_vetting(content)
    except ValueError:
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, content)


def _get(url: str, token: str | None, most_bytes: int) -> bytes:
    headers = {"User-Agent": "cordee", **({"Authorization": f"Bearer {token}"} if token else {})}
    try:
        code, words, body = call(urllib.request.Request(url, headers=headers), _TIMEOUT_S, most_bytes + 1)
    except (OSError, ValueError) as error:
        raise CordeeError(f"the collector was not reached: {error}", given=url, next="is it up?") from None
    if code != 200:
        raise CordeeError(f"the collector answers {code}: {words}", given=url)
    return body
