"""The code of a job as it was when it was submitted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

from cordee.runs.folder import write_atomically

SCHEMA = "cordee.code/1"
LARGEST_FILE_BYTES = 10_000_000
LARGEST_SNAPSHOT_BYTES = 100_000_000
_LEFT_OUT = frozenset(
    [".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox", ".eggs", "runs", "checkpoints", "wandb"]
)


def snapshot_code(job_folder: Path, destination: Path, manifest: Path) -> str:
    """Copy a job's folder to `destination`, write its manifest, and return its digest.

    Git decides what belongs to the folder where there is a repository; elsewhere caches, environments, runs and
    checkpoints are left out. Files over 10 MB, and what exceeds 100 MB together, are listed with the reason and not
    copied. Links are copied as links, and only when they stay inside.
    """
    entries = describe(job_folder)
    destination.mkdir(mode=0o700, exist_ok=True)
    for name, entry in entries.items():
        if "skipped" in entry:
            continue
        target = destination / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copy2(job_folder / name, target, follow_symlinks=False)
        except OSError as error:
            entry["skipped"] = f"cannot be copied: {error.strerror}"
    digest = digest_of(entries)
    document = {"schema": SCHEMA, "folder": str(job_folder), "digest": digest, "files": entries}
    write_atomically(manifest, json.dumps(document, indent=1))
    return digest


def describe(job_folder: Path) -> dict[str, dict[str, Any]]:
    """Return `{relative path: {size, sha256, mode}}` of a job's files; `skipped` says why one is not copied."""
    entries: dict[str, dict[str, Any]] = {}
    total = 0
    for name in sorted(_names(job_folder)):
        path = job_folder / name
        try:
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                entries[name] = _link(job_folder, path)
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            entry: dict[str, Any] = {"size": status.st_size, "mode": stat.S_IMODE(status.st_mode)}
            entries[name] = entry
            if status.st_size > LARGEST_FILE_BYTES:
                entry["skipped"] = f"larger than {LARGEST_FILE_BYTES} bytes"
            elif total + status.st_size > LARGEST_SNAPSHOT_BYTES:
                entry["skipped"] = f"the snapshot would be larger than {LARGEST_SNAPSHOT_BYTES} bytes"
            else:
                total += status.st_size
                entry["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            entries[name] = {"skipped": f"cannot be read: {error.strerror}"}
    return entries


def digest_of(entries: dict[str, dict[str, Any]]) -> str:
    """Return one digest over names, contents and modes."""
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def changed_files(job_folder: Path, manifest: Path) -> list[str]:
    """Return the names of files that differ now from what the manifest says, those that came or went included."""
    before: dict[str, Any] = json.loads(manifest.read_text())["files"]
    now = describe(job_folder)
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _link(job_folder: Path, path: Path) -> dict[str, Any]:
    target = os.readlink(path)
    inside = Path(os.path.normpath(path.parent / target)).is_relative_to(job_folder)
    return {"link": target} if inside and not os.path.isabs(target) else {"link": target, "skipped": "leads out of the folder"}


def _names(job_folder: Path) -> list[str]:
    names = _git_names(job_folder)
    if names is not None:
        return [name for name in names if not _LEFT_OUT & set(Path(name).parts)]
    found = []
    for folder, folders, files in os.walk(job_folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and not _is_environment(Path(folder, name)))
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        found += [os.path.relpath(os.path.join(folder, name), job_folder) for name in [*files, *links] if not name.endswith(".pyc")]
    return found


def _is_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").is_dir()


def _git_names(job_folder: Path) -> list[str] | None:
    if shutil.which("git") is None or not any((parent / ".git").exists() for parent in (job_folder, *job_folder.parents)):
        return None
    command = ["git", "-C", str(job_folder), "ls-files", "-z", "-co", "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    if done.returncode != 0:
        return None
    return [name.decode(errors="surrogateescape") for name in done.stdout.split(b"\0") if name]
