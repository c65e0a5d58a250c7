"""The folder of a disposable cluster: claimed and filled."""

from __future__ import annotations

import os
from pathlib import Path

from cordee.testing.daemons import Claims
from cordee.testing.slurm import accounting
from cordee.testing.slurm.configuration import SlurmShape, gres_conf, slurm_conf
from cordee.testing.slurm.daemons import link_programs, packages_of

# A path of a Unix socket has at most 107 bytes, and the daemons have theirs below the folder.
CLAIMS = Claims("Slurm", "cordee testing slurm", "cluster.json", SlurmShape, longest=60)
PROGRAMS = "programs"
_NO_PROLOG = "#!/bin/sh\nexit 0\n"


def write_files(folder: Path, shape: SlurmShape) -> None:
    """Write everything that the daemons read."""
    of_nodes = [f"{kind}/{node}" for kind in ("spool", "tmp") for node in shape.node_names]
    for name in ("etc", "state", "log", "pid", "munge", "bin", *of_nodes):
        (folder / name).mkdir(parents=True)
    if shape.suite:
        link_programs(folder / PROGRAMS, packages_of(shape.suite))
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
