"""HTCondor's programs: those that are installed, else a Debian suite's, unpacked into the cache folder; nothing is installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from cordee.testing.daemons import DisposableError, find_program
from cordee.testing.packages import Packages

RECORD = "pool.json"
PACKAGES = Packages(
    "HTCondor",
    "trixie",
    names=("condor",),
    programs=("usr/sbin/condor_*", "usr/bin/condor_*", "usr/bin/classad*", "usr/libexec/condor/*"),
    library="usr/lib/**/libcondor_utils*",
    next="install HTCondor so that condor_master and condor_submit are on PATH, or call it on a Debian machine with network",
)
_LIBEXEC = ("libexec/condor", "lib/condor/libexec", "libexec")


class DisposablePoolError(DisposableError):
    """A disposable HTCondor pool cannot be made, or one of its daemons does not do what it should."""


class Programs(NamedTuple):
    """Where HTCondor's programs lie.

    Attributes:
        release: what the other folders lie in, HTCondor's RELEASE_DIR.
        bin, sbin, libexec: commands, daemons, and helpers as condor_chirp.
    """

    release: Path
    bin: Path
    sbin: Path
    libexec: Path


def find() -> Programs | None:
    """Return the programs that are installed or were fetched, None when there are none."""
    path = os.pathsep.join(folder for folder in os.get_exec_path() if not _is_of_a_pool(folder))
    master, submit = find_program("condor_master", path), find_program("condor_submit", path)
    if master and submit:
        sbin, commands = Path(master).resolve().parent, Path(submit).resolve().parent
        release = sbin.parent
        libexec = next((release / name for name in _LIBEXEC if (release / name / "condor_chirp").exists()), None)
        if libexec:
            return Programs(release, commands, sbin, libexec)
    release = PACKAGES.folder / "usr"
    if release.is_dir():
        return Programs(release, release / "bin", release / "sbin", release / "libexec" / "condor")
    return None


def fetch() -> Programs:
    """Return the programs; where none are installed they are fetched, once (140 MB, about a minute).

    Raises:
        DisposableError: they cannot be fetched.
    """
    if found := find():
        return found
    PACKAGES.fetch()
    found = find()
    assert found, PACKAGES.folder
    return found


def _is_of_a_pool(folder: str) -> bool:
    """Return whether a folder of PATH holds the wrappers of a pool that is up, which are no programs for another one."""
    return os.path.exists(Path(folder).parent / RECORD)  # False for what is closed to this user
