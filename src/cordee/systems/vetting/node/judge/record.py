"""Writes a vetting into the history: a folder, or a collector. A vetting neither fails nor waits because of it."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from pathlib import Path
from typing import Any, Union

from cordee.systems.vetting.node.judge import history
from cordee.systems.vetting.node.judge.spool import VettingSpool

_LOG = logging.getLogger("cordee.systems.vetting.node.judge.history")
_WAIT_S = 5.0


def write(document: dict[str, Any], target: dict[str, Any]) -> None:
    """Put a vetting into the history; what goes wrong is logged as a warning and never raised.

    Args:
        document: the allocation document.
        target: a protocol's `history`: `folder`, or `url` with `token_file` (only its owner may read it) and perhaps
            `spool` (a folder that keeps what could not be sent until the next vetting); and perhaps `user`: `name`,
            `hash` or `none`.

    It returns after at most five seconds, also when the file system or the collector hangs.
    """
    worker = threading.Thread(target=_write, args=(document, dict(target)), name="history", daemon=True)
    worker.start()
    worker.join(_WAIT_S)
    if worker.is_alive():
        _LOG.warning("the history takes longer than %g s; the vetting does not wait for it", _WAIT_S)


def write_file(folder: Union[str, Path], header: dict[str, Any], content: bytes) -> Path:
    """Write one vetting's file below `folder`, complete or not at all, and return its path.

    Folders of days are made as open as `folder` is, since several people may write into it.

    Raises:
        OSError: it cannot be written.
    """
    parent = Path(folder)
    parent.mkdir(parents=True, exist_ok=True)
    shard = parent / history.day(header)
    if not shard.is_dir():
        try:
            shard.mkdir()
            os.chmod(shard, parent.stat().st_mode & 0o7777)
        except FileExistsError:
            pass
    target = shard / history.file_name(header)
    temporary = shard / f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return target


def _write(document: dict[str, Any], target: dict[str, Any]) -> None:
    try:
        lines = history.lines_of(document, target.get("user") or "name")
        content = history.encode(lines)
        if target.get("folder"):
            write_file(os.path.expandvars(os.path.expanduser(target["folder"])), lines[0], content)
        elif target.get("url"):
            spool = VettingSpool(target["url"], target.get("token_file"), target.get("spool"))
            spool.add(lines[0], content)
            spool.send()
        else:
            _LOG.warning("the history has neither a folder nor a url: %r", target)
    except Exception as error:
        _LOG.warning("the history was not written: %s: %s", type(error).__name__, error)
