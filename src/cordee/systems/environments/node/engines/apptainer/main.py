"""What stands in front of Apptainer: it hands over the environment exactly, and ends instances whose holder has ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from cordee.systems.environments.node.engines._base import CONTAINER_SCHEMA, EXIT_ENGINE
from cordee.systems.environments.node.engines.apptainer.argv import enter_words, stop_words
from cordee.systems.environments.node.engines.namespace.execute import given_environment, say

_HANDED = (b"APPTAINERENV_", b"SINGULARITYENV_")
# Apptainer needs these for itself; the command gets its own in the same way as all others.
_OWN = (b"HOME", b"USER", b"LOGNAME", b"XDG_RUNTIME_DIR", b"TMPDIR", b"APPTAINER_CACHEDIR", b"APPTAINER_TMPDIR")
_PATH = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main(words: list[str]) -> None:
    """Do what the words say: `run PROGRAM WORDS`, `hold PROGRAM WORKDIR WORDS` or `enter PROGRAM NAME [--workdir DIR] -- ARGV`."""
    what, program, *rest = words
    if what == "run":
        _become(program, rest)
    elif what == "hold":
        sys.exit(_hold(program, rest[0], rest[1:]))
    elif what == "enter":
        cut = rest.index("--")
        workdir = rest[2] if rest[1:2] == ["--workdir"] else "/"
        _become(program, enter_words(rest[0], rest[cut + 1 :], workdir))


def handed_environment(program: str, environ: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the environment that Apptainer is started with, so that a command gets exactly `environ`."""
    own = {name: environ[name] for name in _OWN if name in environ}
    handed = _HANDED[1] if os.path.basename(program) == "singularity" else _HANDED[0]
    # HOME is refused in this form: Apptainer gives a command its own HOME, which it has from here.
    return {b"PATH": _PATH, **own, **{handed + name: value for name, value in environ.items() if name != b"HOME"}}


def _become(program: str, words: list[str]) -> None:
    try:
        os.execve(program, [program, *words], handed_environment(program, given_environment()))
    except OSError as error:
        say(f"{program} cannot be started: {error.strerror}")
        os._exit(EXIT_ENGINE)


def _hold(program: str, workdir: str, words: list[str]) -> int:
    name = f"cordee-{os.getpid()}"
    environ = handed_environment(program, given_environment())
    watched, alive = os.pipe()
    if os.fork() == 0:
        _watch(program, name, environ, watched, alive)
    os.close(watched)
    # A file and no pipe: what keeps the instance open may keep its standard error open too.
    with tempfile.TemporaryFile() as said:
        try:
            done = subprocess.run(
                [program, *words, name], env=environ, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False
            )
        except OSError as error:
            return _refuse(f"{program} cannot be started: {error.strerror}", program)
        if done.returncode:
            said.seek(0)
            lines = said.read().decode("utf-8", "replace").strip().splitlines()
            return _refuse(
                f"Apptainer could not start an instance: {lines[-1] if lines else 'it said nothing'}", words[-1]
            )
    enter = [sys.executable, "-I", "-S", "-c", *_our_words(), "enter", program, name]
    _print({"enter": enter, "workdir": workdir})
    while os.read(0, 4096):
        pass
    return 0


def _our_words() -> list[str]:
    """Return the program and the folder that this process was started with."""
    with open("/proc/self/cmdline", encoding="utf-8", errors="surrogateescape") as file:
        words = file.read().split("\0")
    return words[words.index("-c") + 1 :][:2]


def _watch(program: str, name: str, environ: dict[bytes, bytes], watched: int, alive: int) -> None:
    """Outlive the holder, and stop its instance when it has ended by whatever."""
    try:
        os.close(alive)
        os.setsid()
        silent = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(silent, number)
        os.read(watched, 1)
        os.execve(program, [program, *stop_words(name)], environ)
    finally:
        os._exit(0)


def _refuse(text: str, given: str) -> int:
    error = {"kind": "environment", "text": text, "given": given, "next": "`cordee env run -v` shows other engines"}
    _print({"error": {**error, "file": None, "line": None, "allowed": None}})
    return EXIT_ENGINE


def _print(content: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"schema": CONTAINER_SCHEMA, **content}) + "\n")
    sys.stdout.flush()
