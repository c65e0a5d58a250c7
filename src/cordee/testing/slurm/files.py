"""The folder of a disposable cluster: claimed, filled and recognized."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from cordee.core.errors import UsageError
from cordee.testing.slurm import accounting
from cordee.testing.slurm.configuration import SlurmShape, gres_conf, slurm_conf

_RECORD = "cluster.json"
# A path of a Unix socket has at most 107 bytes, and the daemons have theirs below the folder.
_LONGEST = 60
_FORBIDDEN = " \t\n#\"'\\,=%[]"
_NO_PROLOG = "#!/bin/sh\nexit 0\n"


def require_name(folder: Path) -> Path:
    """Return a folder as an absolute path.

    Raises:
        UsageError: Slurm's files and sockets cannot hold a path of this length or with these characters.
    """
    path = Path(folder).absolute()
    if len(os.fsencode(path)) > _LONGEST or any(char in str(path) for char in _FORBIDDEN):
        raise UsageError(
            "Slurm cannot work in a folder of this name",
            given=str(path),
            allowed=f"at most {_LONGEST} bytes, without blanks, quotes, brackets and # , = % \\",
            next="give a shorter folder, for example below /tmp",
        )
    return path


def is_claimed(folder: Path) -> bool:
    """Return whether a cluster's record lies in a folder."""
    return (folder / _RECORD).exists()


def claim(folder: Path, shape: SlurmShape) -> None:
    """Make the folder, and write the record by which `down` knows that it may remove it.

    Raises:
        UsageError: something lies there.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            "a disposable Slurm wants a folder of its own", given=f"{folder} is not empty", next="give another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    write_record(folder, shape)


def write_record(folder: Path, shape: SlurmShape) -> None:
    """Write what the cluster is made of."""
    fresh = folder / f"{_RECORD}.new"
    fresh.write_text(shape.model_dump_json(indent=2))
    fresh.replace(folder / _RECORD)


def read_record(folder: Path) -> SlurmShape:
    """Return what the cluster of a folder is made of.

    Raises:
        UsageError: there is none.
    """
    try:
        return SlurmShape.model_validate_json((folder / _RECORD).read_bytes())
    except (OSError, ValidationError):
        raise UsageError(
            "no disposable Slurm lies here",
            given=str(folder),
            allowed="a folder in which `cordee testing slurm up` was called",
            next="put one up: cordee testing slurm up",
        ) from None


def write_files(folder: Path, shape: SlurmShape) -> None:
    """Write everything that the daemons read."""
    of_nodes = [f"{kind}/{node}" for kind in ("spool", "tmp") for node in shape.node_names]
    for name in ("etc", "state", "log", "pid", "munge", "bin", *of_nodes):
        (folder / name).mkdir(parents=True)
    _write_secret(folder / "munge" / "key", os.urandom(128))
    write_prolog(folder, None)
    (folder / "etc" / "slurm.conf").write_text(slurm_conf(folder, shape))
    (folder / "etc" / "gres.conf").write_text(gres_conf(folder, shape))
    for name, text in shape.files.items():
        (folder / "etc" / name).write_text(text)
    if shape.accounting:
        _write_secret(folder / "etc" / "slurmdbd.conf", accounting.slurmdbd_conf(folder, shape).encode())


def _write_secret(path: Path, data: bytes) -> None:
    path.touch(0o600)
    path.write_bytes(data)


def write_prolog(folder: Path, script: str | None) -> None:
    """Write the Prolog: a shell script, or one that does nothing."""
    text = _NO_PROLOG if script is None else script if script.startswith("#!") else f"#!/bin/sh\n{script}\n"
    path = folder / "bin" / "prolog"
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(0o755)
    fresh.replace(path)
