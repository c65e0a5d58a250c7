"""Programs of a Debian suite that are not installed: fetched once, unpacked into the cache folder, made to run from there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cordee.testing.daemons import DisposableError, find_program

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_NEEDED = ("apt-get", "dpkg-deb")
_FETCH_S = 900.0


@dataclass(frozen=True)
class Packages:
    """Packages of a Debian suite.

    Attributes:
        software: what they are of, as `HTCondor`.
        suite: as `trixie`.
        names: of the packages; what these need comes along, down to the C library.
        programs: patterns of the programs in them that need the suite's loader; all others there are scripts.
        library: pattern of the library beside which the software has its own.
        next: what to do where they cannot be fetched.
    """

    software: str
    suite: str
    names: tuple[str, ...]
    programs: tuple[str, ...]
    library: str
    next: str

    @property
    def folder(self) -> Path:
        """The folder that they lie in, there or not."""
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return base.absolute() / "cordee" / f"{self.software.lower()}-programs" / self.suite

    def fetch(self) -> Path:
        """Return the folder that they lie in; the first call fetches them, which takes about a minute.

        Raises:
            DisposableError: they cannot be fetched.
        """
        missing = [name for name in _NEEDED if find_program(name) is None]
        if missing and not self.folder.is_dir():
            raise DisposableError(
                f"packages of {self.software} cannot be fetched here",
                given=f"not found: {', '.join(missing)}",
                allowed="a Debian machine",
                next=self.next,
            )
        folder = self.folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f".{self.suite}.lock")):
            if not folder.is_dir():  # else another process has fetched them meanwhile
                fresh, work = folder.with_name(f"{self.suite}.new"), folder.with_name(f"{self.suite}.apt")
                for old in (fresh, work):
                    shutil.rmtree(old, ignore_errors=True)
                    old.mkdir()
                try:
                    self._download(work)
                    for package in sorted((work / "archives").glob("*.deb")):
                        self._run(["dpkg-deb", "-x", str(package), str(fresh)])
                    self.patch(fresh, folder)
                    _remove_the_rest(fresh)
                    fresh.rename(folder)
                finally:
                    shutil.rmtree(fresh, ignore_errors=True)
                    shutil.rmtree(work, ignore_errors=True)
        return folder

    def patch(self, folder: Path, final: Path) -> None:
        """Write the loader and the libraries of unpacked packages into their programs, for the folder that they will lie in.

        LD_LIBRARY_PATH would not do: the suite's C library needs the suite's loader, and each job would inherit the variable.

        Raises:
            DisposableError: a program cannot be patched.
        """
        loader = self._first(folder, "usr/lib*/ld-linux*.so.*", "usr/lib/*/ld-linux*.so.*")
        libraries = self._first(folder, "usr/lib/*/libc.so.6").parent
        own = self._first(folder, self.library).parent
        patchelf = [str(loader), "--library-path", str(libraries), str(folder / "usr/bin/patchelf"), "--force-rpath"]
        patchelf += ["--set-rpath", ":".join(str(_moved(path, folder, final)) for path in (libraries, own))]
        for program in sorted(path for pattern in self.programs for path in folder.glob(pattern)):
            if program.is_symlink() or not program.is_file() or program.read_bytes()[:4] != b"\x7fELF":
                continue
            set_loader = [] if ".so" in program.suffixes else ["--set-interpreter", str(_moved(loader, folder, final))]
            self._run([*patchelf, *set_loader, str(program)])

    def _download(self, work: Path) -> None:
        """Download them and all that they need, down to the C library, as on a machine where nothing is installed."""
        for name in ("lists/partial", "archives/partial"):
            (work / name).mkdir(parents=True)
        (work / "status").touch()
        signed = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
        (work / "sources.list").write_text(f"deb {signed}{self._archive()} {self.suite} main\n")
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
        self._run([*apt, "-o", "APT::Update::Error-Mode=any", "update"])
        self._run([*apt, "--download-only", "-y", "install", *self.names, "patchelf"])

    def _archive(self) -> str:
        """Return the address of the Debian archive that this machine's apt uses."""
        listed = self._run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]).split()
        found = next((address for address in listed if re.search(r"/debian/?$", address)), None)
        if found is None:
            raise DisposableError(
                f"packages of {self.software} cannot be fetched: no Debian archive is among apt's sources",
                given=", ".join(sorted(set(listed))) or "no sources",
                allowed="an address that ends in /debian",
                next=self.next,
            )
        return found

    def _run(self, command: list[str]) -> str:
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
            raise DisposableError(
                f"packages of {self.software} could not be fetched: {Path(command[0]).name} failed\n{words[-1500:]}",
                given=f"Debian suite {self.suite}, through apt's sources",
                next=f"look at what it said, and call it again; or {self.next}",
            )
        return said

    def _first(self, folder: Path, *patterns: str) -> Path:
        found = next((path for pattern in patterns for path in sorted(folder.glob(pattern))), None)
        if found is None:
            raise DisposableError(f"packages of {self.software} lack a file", given=", ".join(patterns), next=self.next)
        return found


def _remove_the_rest(folder: Path) -> None:
    for pattern in ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/perl*", "usr/lib/*/perl*"):
        for path in folder.glob(pattern):
            shutil.rmtree(path)
    for name in ("etc", "var", "dev", "proc", "sys"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _moved(path: Path, folder: Path, final: Path) -> Path:
    return final / path.relative_to(folder)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
