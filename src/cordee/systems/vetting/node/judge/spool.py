"""Sends vettings to a collector; what cannot be sent lies in a spool and goes with the next one."""

from __future__ import annotations

import logging
import os
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Optional

from cordee.machine.tasks.actions import call, read_token
from cordee.systems.vetting.node.judge import history

_LOG = logging.getLogger("cordee.systems.vetting.node.judge.history")
_TIMEOUT_S = 3.0
_BUDGET_S = 4.0
_MOST_KEPT = 1000
# The collector has it, or will never take it; anything else is tried again.
_SETTLED = frozenset([200, 201])
_REFUSED = frozenset([400, 409, 413, 415, 422])
_LOOPBACK = frozenset(["127.0.0.1", "::1", "localhost"])


class VettingSpool:
    """A folder of vettings that are on their way to a collector.

    Args:
        url: the collector's address, https, or http on this machine.
        token_file: holds the token that it asks for; nobody but its owner may read it.
        folder: where the spool lies; default: in the user's state folder.

    Raises:
        ValueError: the address would show the token to others on the network.
    """

    def __init__(self, url: str, token_file: Optional[str], folder: Optional[str] = None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url} is no http(s) address")
        if parts.scheme == "http" and token_file and parts.hostname not in _LOOPBACK:
            raise ValueError(f"{url} would carry the token in the clear; use https")
        self.url = url.rstrip("/") + "/v1/vettings"
        self._token_file = token_file
        base = Path(folder) if folder else _state_folder() / "history"
        self.folder = base / history.safe(f"{parts.hostname}-{parts.port or parts.scheme}")

    def add(self, header: dict[str, Any], content: bytes) -> None:
        """Put a vetting into the spool.

        Raises:
            OSError: it cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in self._waiting()[: -(_MOST_KEPT - 1)]:
            _LOG.warning("the spool is full: %s is dropped", old.name)
            old.unlink(missing_ok=True)
        target = self.folder / history.file_name(header)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        temporary.write_bytes(content)
        os.replace(temporary, target)

    def send(self) -> int:
        """Send what lies in the spool, the newest first, within a few seconds; return how many are left."""
        deadline = time.monotonic() + _BUDGET_S
        for path in reversed(self._waiting()):
            if time.monotonic() > deadline:
                break
            try:
                code, words = self._post(path.read_bytes())
            except FileNotFoundError:
                continue  # another process has sent it
            except (OSError, ValueError) as error:
                _LOG.warning("the collector was not reached (%s); the vetting waits in %s", error, self.folder)
                break
            if code in _SETTLED:
                path.unlink(missing_ok=True)
            elif code in _REFUSED:
                _LOG.warning("the collector refuses %s: %s %s", path.name, code, words)
                refused = self.folder / "refused"
                refused.mkdir(exist_ok=True)
                os.replace(path, refused / path.name)
            else:
                _LOG.warning("the collector answered %s %s; the vetting waits in %s", code, words, self.folder)
                break
        return len(self._waiting())

    def _waiting(self) -> list[Path]:
        return sorted(self.folder.glob("[!.]*.jsonl"))

    def _post(self, content: bytes) -> tuple[int, str]:
        headers = {"Content-Type": "application/x-ndjson", "User-Agent": "cordee"}
        if self._token_file:
            headers["Authorization"] = f"Bearer {read_token(self._token_file)}"
        request = urllib.request.Request(self.url, data=content, headers=headers, method="POST")
        return call(request, _TIMEOUT_S)[:2]


def _state_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "cordee"
