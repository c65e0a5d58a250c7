"""Entries, and the byte code of the sources among them, become a squashfs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from cordee.machine.squashfs.entry import SquashfsEntry
from cordee.machine.squashfs.image import SquashFile
from cordee.systems.environments.venv_image.bytecode import Code, Compilers
from cordee.systems.environments.venv_image.interpreter import Interpreter


@dataclass
class WrittenFiles:
    """Files in a squashfs, and where their byte code came from; `not_compiled` are names of sources without."""

    files: int = 0
    reused: int = 0
    compiled: int = 0
    not_compiled: list[str] = field(default_factory=list)


def write(
    entries: list[SquashfsEntry], output: Path, interpreter: Interpreter, at: Path, compression: str, force: bool
) -> tuple[WrittenFiles, int]:
    """Make the squashfs `output`, which appears when it is whole, and return what is in it with its size in bytes.

    Args:
        entries: each path once.
        at: where it will be mounted.
        force: replace a file that is there.
    """
    processors = len(os.sched_getaffinity(0))
    sources = [(entry.source, str(at / entry.name)) for entry in entries if entry.compile and entry.source]
    counts, caches = WrittenFiles(), set()
    with (
        Compilers(interpreter.python, sources, processors) as codes,
        SquashFile(output, compression, processors) as squash,
    ):
        for entry in entries:
            squash.add(entry)
            counts.files += entry.kind == "file"
            if entry.compile:
                above, _, name = entry.name.rpartition("/")
                if above not in caches:
                    caches.add(above)
                    squash.add(SquashfsEntry(f"{above}/__pycache__", "folder", time=entry.time))
                code = next(codes)
                _count(counts, entry, code)
                if code.data is not None:
                    cached = f"{above}/__pycache__/{name[:-3]}.{interpreter.cache_tag}.pyc"
                    squash.add(SquashfsEntry(cached, "file", 0o644, entry.time, len(code.data), data=code.data))
        size = squash.finish()
        squash.put(force)
    return counts, size


def _count(counts: WrittenFiles, entry: SquashfsEntry, code: Code) -> None:
    if code.data is None:
        counts.not_compiled.append(entry.name)
        return
    counts.files += 1
    if code.reused:
        counts.reused += 1
    else:
        counts.compiled += 1
