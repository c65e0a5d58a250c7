"""What NCCL and RCCL say of themselves on a node: their RAS subsystem by its own client, and the files of the Inspector plug-in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Iterator, Optional, Sequence

from cordee.machine import sysfs
from cordee.machine.foreign_files import regular
from cordee.machine.limited import answers_within

_RAS_BYTES, _TAIL_BYTES = 4 << 20, 128 << 10
_MOST_FILES = 16
_FOLDER = b"NCCL_INSPECTOR_DUMP_DIR="


def nccl_files(node: str, pids: Sequence[int], most_s: float) -> dict[str, bytes]:
    """Return what there is, by the names of files; nothing is waited for longer than `most_s`.

    Args:
        node: its name, a part of those names.
        pids: of processes whose environment says where the Inspector writes.
        most_s: for all of it.
    """
    answers = answers_within(
        most_s, {"ras": lambda: _ras(most_s), "inspector": lambda: [list(tail) for tail in _tails(pids)]}
    )
    found = {}
    if isinstance(answers["ras"], list):
        ending, text = answers["ras"]
        found[f"ras-{node}.{ending}"] = text.encode()
    if isinstance(answers["inspector"], list):
        for name, text in answers["inspector"]:
            found[f"inspector-{node}-{re.sub('[^A-Za-z0-9_.-]', '_', name)[-100:]}"] = text.encode()
    return found


def _ras(most_s: float) -> Optional[list[str]]:
    """Return an ending and what ncclras prints, as JSON where it can (NCCL 2.28.7 and newer); None where nobody answers it."""
    command = shutil.which("ncclras")
    if command is None:
        return None
    for ending, options in (("json", ("-f", "json")), ("txt", ())):
        try:
            argv = [command, "-v", *options]
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=most_s / 2, check=False)
        except (OSError, subprocess.SubprocessError):
            return None
        if done.returncode == 0 and done.stdout:
            return [ending, done.stdout[:_RAS_BYTES].decode(errors="replace")]
    return None


def _tails(pids: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Yield names and last bytes of the newest files of the Inspector."""
    folders = {folder for folder in map(_inspector_folder, pids) if folder is not None}
    paths = [os.path.join(folder, name) for folder in folders for name in sysfs.names(folder)[:10_000]]
    for path in sorted(paths, key=_changed_at)[-_MOST_FILES:]:
        try:
            with open(path, "rb", opener=regular) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
                yield os.path.basename(path), file.read(_TAIL_BYTES).decode(errors="replace")
        except OSError:
            continue


def _inspector_folder(pid: int) -> Optional[str]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            told = [one for one in file.read().split(b"\0") if one.startswith(_FOLDER)]
        return os.path.join(os.readlink(f"/proc/{pid}/cwd"), os.fsdecode(told[0][len(_FOLDER) :])) if told else None
    except OSError:
        return None


def _changed_at(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0
