"""The rendezvous file: where a run's supervisor listens, and the secret of the run."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import NamedTuple, Union

from cordee.core.errors import WireError

_SCHEMA = "cordee.rendezvous/1"
_MAX_BYTES = 4096


class Rendezvous(NamedTuple):
    """Where a run's supervisor listens, and the secret that proves one belongs to the run."""

    address: str
    port: int
    epoch: int
    token: bytes


def new_token() -> bytes:
    """Return a fresh secret of 32 bytes."""
    return os.urandom(32)


def write_rendezvous(path: Union[str, Path], address: str, port: int, epoch: int, token: bytes) -> None:
    """Write the rendezvous file with mode 0600; readers see the old or the new one, never a part.

    Raises:
        WireError: the folder is gone, read-only or full.
    """
    target = Path(path)
    document = {"schema": _SCHEMA, "address": address, "port": port, "epoch": epoch, "token": token.hex()}
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(json.dumps(document).encode() + b"\n")
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise WireError(f"cannot write the rendezvous file: {error.strerror}", given=str(target)) from error


def read_rendezvous(path: Union[str, Path]) -> Rendezvous:
    """Read the rendezvous file.

    Raises:
        FileNotFoundError: it is not there (yet).
        WireError: it belongs to someone else, others may read it, it cannot be read, or it is not one.
    """
    given = str(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            data = file.read(_MAX_BYTES) if stat.S_ISREG(status.st_mode) else b""
    except FileNotFoundError:
        raise
    except OSError as error:
        raise WireError(f"cannot read the rendezvous file: {error.strerror}", given=given) from error
    if not stat.S_ISREG(status.st_mode):
        raise WireError("the rendezvous file is not a regular file", given=given)
    if status.st_uid != os.geteuid():
        raise WireError(
            f"the rendezvous file belongs to user {status.st_uid}, not to you (user {os.geteuid()})",
            given=given,
            next="do not trust it: someone else wrote it, or the run is not yours",
        )
    if status.st_mode & 0o077:
        raise WireError(
            "the rendezvous file may be read by others, so its token is no secret",
            given=f"{given}, mode {stat.S_IMODE(status.st_mode):04o}",
            allowed="mode 0600",
            next="cancel the run and start it again: a new token is made",
        )
    try:
        document = json.loads(data)
        if document["schema"] != _SCHEMA:
            raise ValueError(f"its schema is {document['schema']!r}")
        token = bytes.fromhex(document["token"])
        return Rendezvous(str(document["address"]), int(document["port"]), int(document["epoch"]), token)
    except (ValueError, KeyError, TypeError) as error:
        raise WireError(f"the rendezvous file is damaged: {error}", given=given, allowed=_SCHEMA) from None
