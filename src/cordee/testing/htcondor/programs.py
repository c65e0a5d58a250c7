"""HTCondor's programs: those that are installed, else a Debian suite's, unpacked into the cache folder; nothing is installed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cordee.testing.daemons import DisposableError, find_program

SUITE = "trixie"
RECORD = "pool.json"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_NEEDED = ("apt-get", "dpkg-deb")
_FETCH_S = 900.0
# Programs of the unpacked packages that need another loader: all others there are scripts.
_PROGRAMS = ("usr/sbin/condor_*", "usr/bin/condor_*", "usr/bin/classad*", "usr/libexec/condor/*")
_LIBEXEC = ("libexec/condor", "lib/condor/libexec", "libexec")
_NEXT = (
    "install HTCondor so that condor_master and condor_submit are on PATH, or call it on a Debian machine with network"
)


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


def cache_folder() -> Path:
    """Return the folder that the fetched programs lie in, there or not."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base.absolute() / "cordee" / "htcondor-programs" / SUITE


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
    release = cache_folder() / "usr"
    if release.is_dir():
        return Programs(release, release / "bin", release / "sbin", release / "libexec" / "condor")
    return None


def fetch() -> Programs:
    """Return the programs; where none are installed they are fetched, once (140 MB, about a minute).

    Raises:
        DisposablePoolError: they cannot be fetched.
    """
    if found := find():
        return found
    missing = [name for name in _NEEDED if find_program(name) is None]
    if missing:
        raise DisposablePoolError(
            "HTCondor is not installed, and its packages cannot be fetched here",
            given=f"not found: {', '.join(missing)}",
            allowed="a Debian machine",
            next=_NEXT,
        )
    folder = cache_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f".{SUITE}.lock")):
        if not folder.is_dir():  # else another process has fetched them meanwhile
            fresh, work = folder.with_name(f"{SUITE}.new"), folder.with_name(f"{SUITE}.apt")
            for old in (fresh, work):
                shutil.rmtree(old, ignore_errors=True)
                old.mkdir()
            try:
                _download(work)
                for package in sorted((work / "archives").glob("*.deb")):
                    _run(["dpkg-deb", "-x", str(package), str(fresh)])
                patch(fresh, folder)
                _remove_the_rest(fresh)
                fresh.rename(folder)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
                shutil.rmtree(work, ignore_errors=True)
    found = find()
    assert found, folder
    return found


def patch(folder: Path, final: Path) -> None:
    """Write the loader and the libraries of unpacked packages into their programs, for the folder that they will lie in.

    LD_LIBRARY_PATH would not do: the suite's C library needs the suite's loader, and each job would inherit the variable.

    Raises:
        DisposablePoolError: a program cannot be patched.
    """
    loader = _first(folder, "usr/lib*/ld-linux*.so.*", "usr/lib/*/ld-linux*.so.*")
    libraries = _first(folder, "usr/lib/*/libc.so.6").parent
    own = _first(folder, "usr/lib/**/libcondor_utils*").parent
    patchelf = [str(loader), "--library-path", str(libraries), str(folder / "usr/bin/patchelf"), "--force-rpath"]
    patchelf += ["--set-rpath", ":".join(str(_moved(path, folder, final)) for path in (libraries, own))]
    for pattern in _PROGRAMS:
        for program in sorted(folder.glob(pattern)):
            if program.is_symlink() or not program.is_file() or program.read_bytes()[:4] != b"\x7fELF":
                continue
            set_loader = [] if ".so" in program.suffixes else ["--set-interpreter", str(_moved(loader, folder, final))]
            _run([*patchelf, *set_loader, str(program)])


def _download(work: Path) -> None:
    """Download HTCondor and all that it needs, down to the C library, as on a machine where nothing is installed."""
    for name in ("lists/partial", "archives/partial"):
        (work / name).mkdir(parents=True)
    (work / "status").touch()
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
    (work / "sources.list").write_text(f"deb {signed}{_archive()} {SUITE} main\n")
    settings = {
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": work,
        "Dir::State::lists": work / "lists",
        "Dir::State::status": work / "status",
        "Dir::Cache": work,
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    apt = ["apt-get", "-qq", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    _run([*apt, "-o", "APT::Update::Error-Mode=any", "update"])
    _run([*apt, "--download-only", "-y", "install", "condor", "patchelf"])


def _archive() -> str:
    """Return the address of the Debian archive that this machine's apt uses."""
    listed = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]).split()
    found = next((address for address in listed if re.search(r"/debian/?$", address)), None)
    if found is None:
        raise DisposablePoolError(
            "HTCondor is not installed, and no Debian archive is among apt's sources to fetch it from",
            given=", ".join(sorted(set(listed))) or "no sources",
            allowed="an address that ends in /debian",
            next=_NEXT,
        )
    return found


def _remove_the_rest(folder: Path) -> None:
    for pattern in ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/perl*", "usr/lib/*/perl*"):
        for path in folder.glob(pattern):
            shutil.rmtree(path)
    for name in ("etc", "var", "dev", "proc", "sys"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            [str(find_program(command[0]) or command[0]), *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_FETCH_S,
            check=False,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        )
        words, code, said = done.stderr.strip() or done.stdout.strip(), done.returncode, done.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        words, code, said = str(error), 1, ""
    if code != 0:
        raise DisposablePoolError(
            f"HTCondor's packages could not be fetched: {Path(command[0]).name} failed\n{words[-1500:]}",
            given=f"Debian suite {SUITE}, through apt's sources",
            next=f"look at what it said, and call it again; or {_NEXT}",
        )
    return said


def _first(folder: Path, *patterns: str) -> Path:
    found = next((path for pattern in patterns for path in sorted(folder.glob(pattern))), None)
    if found is None:
        raise DisposablePoolError("HTCondor's packages lack a file", given=", ".join(patterns), next=_NEXT)
    return found


def _moved(path: Path, folder: Path, final: Path) -> Path:
    return final / path.relative_to(folder)


def _is_of_a_pool(folder: str) -> bool:
    """Return whether a folder of PATH holds the wrappers of a pool that is up, which are no programs for another one."""
    return os.path.exists(Path(folder).parent / RECORD)  # False for what is closed to this user


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
