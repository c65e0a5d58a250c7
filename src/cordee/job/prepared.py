"""Environments with what a protocol's own checks require: made beforehand, once, and never while nodes are vetted.

An environment is a virtual environment in a folder of its own, `<digest>-<letters>`; the link `<digest>` beside it is made by an
atomic rename when everything is installed. What is interrupted leaves no link, so that nobody uses half an environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from cordee.core.errors import CordeeError, UsageError

_IDENTITY = (
    "import json, os, platform, sys; "
    "print(json.dumps([os.path.realpath(sys.executable), sys.version, platform.machine()]))"
)
_ABANDONED_AFTER_S = 24 * 3600.0
_LAST_LINES = 8

Requirements = Sequence[str | Sequence[str]]


class PrepareError(CordeeError):
    """An environment cannot be made."""

    kind = "prepare"


def prepared(requirements: Requirements, python: str | None = None, into: Path | None = None) -> Path | None:
    """Return the interpreter of the environment that `prepare` has made for these requirements, or None.

    Args:
        requirements: as in the protocol: texts as pip takes them, or lists of one with options of pip.
        python: the interpreter that it was made with; None: the one that runs this.
        into: the folder of the environments; None: the user's cache.

    Raises:
        UsageError: a requirement is none.
        PrepareError: the interpreter does not run.
    """
    words = _words(requirements)
    if not words:
        return None
    found = _folder(into) / _digest(words, python or sys.executable) / "bin" / "python"
    return found if os.access(found, os.X_OK) else None


def prepare(
    requirements: Requirements, python: str | None = None, index_url: str | None = None, into: Path | None = None
) -> Path:
    """Make the environment for these requirements, unless it is there, and return its interpreter.

    Whoever comes at the same time waits. It may be killed at any moment: the next call makes it anew.

    Args:
        requirements, python, into: as in `prepared`.
        index_url: where pip gets packages from; an entry's own `--index-url` goes before.

    Raises:
        UsageError: a requirement is none, or there are none.
        PrepareError: the environment cannot be made; with pip's last words.
    """
    words, python = _words(requirements), python or sys.executable
    if not words:
        raise UsageError("nothing is required: there is no environment to prepare", next="use the protocol as it is")
    folder, digest = _folder(into), _digest(words, python)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / f"{digest}.lock"):
            ready = prepared(requirements, python, into)
            if ready is None:
                _sweep(folder, digest)
                _make(folder, digest, words, python, index_url)
    except OSError as error:
        next_step = "name a folder that can be written with --into"
        raise PrepareError(f"{folder} cannot be used: {error.strerror or error}", next=next_step) from None
    return folder / digest / "bin" / "python"


def _make(folder: Path, digest: str, words: list[list[str]], python: str, index_url: str | None) -> None:
    place = folder / f"{digest}-{secrets.token_hex(4)}"
    try:
        next_step = "install the venv module of this Python, or name another interpreter"
        _call([python, "-I", "-m", "venv", str(place)], f"{python} cannot make a virtual environment", next_step)
        pip = [str(place / "bin" / "python"), "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
        for entry in words:
            index = ["--index-url", index_url] if index_url and not _names_index(entry) else []
            next_step = "correct the requirement, or give `pip: {index_url: ...}` of an index that has it"
            _call([*pip, *index, *entry], f"pip cannot install {entry[0]}", next_step)
        (place / "cordee.json").write_text(
            json.dumps({"requirements": words, "python": python, "index_url": index_url})
        )
        link = folder / f".{place.name}"
        link.symlink_to(place.name)
        os.replace(link, folder / digest)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def _call(argv: list[str], failure: str, next_step: str) -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        env={**env, "PIP_USER": "0"},
    )
    if done.returncode:
        last = [line for line in done.stdout.splitlines() if line.strip()][-_LAST_LINES:]
        raise PrepareError("\n  ".join([failure, *last]), given=" ".join(argv[-3:]), next=next_step)


def _words(requirements: Requirements) -> list[list[str]]:
    """Return each entry as the words that pip gets."""
    found = []
    for entry in requirements:
        words = [entry] if isinstance(entry, str) else list(entry)
        if not words or not all(isinstance(word, str) and word.strip() for word in words) or words[0].startswith("-"):
            raise UsageError(
                "a requirement is a package as pip takes it, or a list of one and options of pip",
                given=entry,
                allowed="torch>=2.4, or [torch, --index-url, https://...]",
            )
        found.append([word.strip() for word in words])
    return found


def _names_index(words: list[str]) -> bool:
    return any(word in ("-i", "--index-url", "--no-index") or word.startswith("--index-url=") for word in words)


def _digest(words: list[list[str]], python: str) -> str:
    """Return what names an environment: its requirements and its interpreter, wherever that is called from."""
    try:
        done = subprocess.run([python, "-I", "-S", "-c", _IDENTITY], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        words_of_it = getattr(error, "stderr", None) or str(error)
        raise PrepareError(f"{python} does not run: {words_of_it.strip()[-300:]}") from None
    return hashlib.sha256(json.dumps([words, json.loads(done.stdout)]).encode()).hexdigest()[:20]


def _folder(into: Path | None) -> Path:
    if into is not None:
        return into
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cordee" / "environments"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock; where the file system has none, two may work at once, each in a folder of its own, and the last one counts."""
    with path.open("w") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(folder: Path, digest: str) -> None:
    """Remove what was interrupted long ago."""
    for path in folder.glob(f"{digest}-*"):
        if time.time() - path.stat().st_mtime > _ABANDONED_AFTER_S:
            shutil.rmtree(path, ignore_errors=True)
