"""The code of a job as it was when it was submitted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from cordee.machine.foreign_files import digest_regular, read_json, regular_below
from cordee.runs.folder import RunFolder, write_atomically

SCHEMA = "cordee.code/1"
LARGEST_FILE_BYTES = 10_000_000
LARGEST_SNAPSHOT_BYTES = 100_000_000
MOST_FILES = 10_000
HELD_BACK = "held back: a key or poison stands in it"
_GIT_PATIENCE_S = 10.0
_LEFT_OUT = frozenset(
    [
        ".git",
        ".hg",
        ".svn",
        "__pycache__",
        ".venv",
        "venv",
        "node_modules",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".tox",
        ".eggs",
        ".ipynb_checkpoints",
        "runs",
        "checkpoints",
        "wandb",
    ]
)
# What programs are made of and configured by; everything else in a job's folder may be what a run writes there.
_CODE = frozenset(
    [
        ".py",
        ".pyi",
        ".pyx",
        ".pxd",
        ".ipynb",
        ".sh",
        ".bash",
        ".toml",
        ".yaml",
        ".yml",
        ".json",
        ".cfg",
        ".ini",
        ".conf",
        ".env",
        ".c",
        ".cc",
        ".cpp",
        ".cxx",
        ".h",
        ".hpp",
        ".cu",
        ".cuh",
        ".hip",
        ".f",
        ".f90",
        ".rs",
        ".go",
        ".java",
        ".jl",
        ".r",
        ".R",
        ".lua",
        ".pl",
        ".m",
        ".proto",
        ".cmake",
        ".so",
        ".jinja",
        ".j2",
    ]
)
_CODE_NAMES = ("Makefile", "Dockerfile", "Containerfile", "requirements")


def snapshot_code(
    job_folder: Path,
    destination: Path,
    manifest: Path,
    *,
    limit_bytes: int = LARGEST_SNAPSHOT_BYTES,
    without: tuple[Path, ...] = (),
) -> str:
    """Copy a job's folder to `destination`, write its manifest, and return its digest.

    Git decides what belongs to the folder where there is a repository; elsewhere caches, environments, runs and
    checkpoints are left out. Files over 10 MB, what exceeds `limit_bytes` together, and what cannot be read are
    listed with the reason and not copied. Links are copied as links, and only when they stay inside. A file that is
    written meanwhile is copied as it was read: the manifest and the copy agree.

    Args:
        job_folder: what is copied.
        destination: a folder that is made if need be.
        manifest: the file that says what was copied and what was not.
        limit_bytes: the most that is copied.
        without: folders that are no code, such as that of checkpoints; and files that are listed, and not copied.

    Raises:
        OSError: the destination cannot be written.
        RunFolderError: the manifest cannot be written.
    """
    destination.mkdir(mode=0o700, parents=True, exist_ok=True)
    entries: dict[str, dict[str, Any]] = {}
    for name, entry, data in _read(job_folder, limit_bytes, (*_own_folders(destination), *without)):
        entries[name] = entry
        if "skipped" in entry:
            continue
        target = destination / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            os.symlink(entry["link"], target)
            continue
        target.write_bytes(data)
        target.chmod(entry["mode"] | stat.S_IRUSR)
    digest = digest_of(entries)
    document = {"schema": SCHEMA, "folder": str(job_folder), "digest": digest, "files": entries}
    write_atomically(manifest, json.dumps(document, indent=1))
    return digest


def digest_of(entries: dict[str, dict[str, Any]]) -> str:
    """Return one digest over names, contents and modes."""
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def changed_files(job_folder: Path, manifest: Path) -> list[str]:
    """Return the names of the code of the snapshot that is gone or differs now.

    Files that came since do not count, nor do logs and results, which grow while a run goes on.
    """
    try:
        before: dict[str, Any] = read_json(manifest, manifest.parent)["files"]
    except (OSError, ValueError, KeyError):
        return []
    return sorted(
        name for name, entry in before.items() if _is_code(name, entry) and _has_changed(job_folder / name, entry)
    )


def code_entries(manifest: Path, without: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """Return the entries of a snapshot's manifest that are code, by name; empty where it cannot be read.

    Args:
        without: files, and folders with all in them, that do not count; relative to the job's folder.
    """
    try:
        entries: dict[str, dict[str, Any]] = read_json(manifest, manifest.parent)["files"]
    except (OSError, ValueError, KeyError):
        return {}
    out = [PurePath(name) for name in without]
    return {
        name: entry
        for name, entry in entries.items()
        if _is_code(name, entry) and not any(path == PurePath(name) or path in PurePath(name).parents for path in out)
    }


def _is_code(name: str, entry: dict[str, Any]) -> bool:
    path = PurePath(name)
    if not path.suffix:
        return bool(entry.get("mode", 0) & stat.S_IXUSR) or path.name in _CODE_NAMES or "link" in entry
    return path.suffix in _CODE or path.name.startswith(_CODE_NAMES)


def _has_changed(path: Path, entry: dict[str, Any]) -> bool:
    if "skipped" in entry:
        return False
    try:
        if "link" in entry:
            return os.readlink(path) != str(entry["link"])
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size != entry["size"]:
            return True
        return digest_regular(path, path.parent) != str(entry["sha256"])
    except OSError:
        return True


def _read(
    job_folder: Path, limit_bytes: int, without: tuple[Path, ...]
) -> Iterator[tuple[str, dict[str, Any], bytes | None]]:
    """Yield (relative path, entry, content) of a job's files in order of name; no content for links and what is left out.

    An entry is {size, sha256, mode} or {link}; `skipped` says why a file is left out.
    """
    total = 0
    for count, name in enumerate(sorted(code_names(job_folder, without))):
        path = job_folder / name
        if path in without:
            yield name, {"skipped": HELD_BACK}, None
            continue
        if count >= MOST_FILES:
            yield name, {"skipped": f"more than {MOST_FILES} files: this and what follows is left out"}, None
            return
        try:
            entry, data = _entry(job_folder, path, limit_bytes - total)
        except FileNotFoundError:
            continue
        except OSError as error:
            entry, data = {"skipped": f"cannot be read: {error.strerror}"}, None
        total += len(data or b"")
        if entry:
            yield name, entry, data


def _entry(job_folder: Path, path: Path, room_bytes: int) -> tuple[dict[str, Any], bytes | None]:
    """Return the entry and content of one file; an empty entry for what is neither a file nor a link."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return _link(job_folder, path), None
    if not stat.S_ISREG(status.st_mode):
        return {}, None
    mode = stat.S_IMODE(status.st_mode) & 0o755
    if status.st_size > LARGEST_FILE_BYTES:
        return {"size": status.st_size, "mode": mode, "skipped": f"larger than {LARGEST_FILE_BYTES} bytes"}, None
    if status.st_size > room_bytes:
        return {"size": status.st_size, "mode": mode, "skipped": "the snapshot would be too large"}, None
    with open(path, "rb", opener=regular_below(path.parent)) as file:
        data = file.read(LARGEST_FILE_BYTES)
    return {"size": len(data), "mode": mode, "sha256": hashlib.sha256(data).hexdigest()}, data


def _link(job_folder: Path, path: Path) -> dict[str, Any]:
    target = os.readlink(path)
    inside = Path(os.path.normpath(path.parent / target)).is_relative_to(job_folder)
    if inside and not os.path.isabs(target):
        return {"link": target}
    return {"link": target, "skipped": "leads out of the folder"}


def _own_folders(destination: Path) -> tuple[Path, ...]:
    """The folder of runs that a snapshot goes to: it may lie inside the job's folder and must not be copied into itself."""
    return (destination.absolute(), destination.absolute().parent)


def code_names(job_folder: Path, without: tuple[Path, ...]) -> Iterator[str]:
    """Yield the names of what a snapshot would carry, relative to the job's folder, but for what lies below `without`."""
    names = _git_names(job_folder)
    if names is None:
        yield from _walked_names(job_folder, without)
        return
    runs: dict[Path, bool] = {}
    for name in names:
        parents = [job_folder / parent for parent in Path(name).parents if parent.parts]
        if _LEFT_OUT & set(Path(name).parts) or any(parent in without for parent in parents):
            continue
        if not any(runs.setdefault(parent, _is_run(parent)) for parent in parents):
            yield name


def _walked_names(job_folder: Path, without: tuple[Path, ...]) -> Iterator[str]:
    count = 0
    for folder, folders, files in os.walk(job_folder):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(name for name in folders if _belongs(Path(folder, name), without))
        for name in sorted([*files, *links]):
            if name.endswith(".pyc") or name in _LEFT_OUT:
                continue
            yield os.path.relpath(os.path.join(folder, name), job_folder)
            count += 1
            if count > MOST_FILES:
                return


def _belongs(folder: Path, without: tuple[Path, ...]) -> bool:
    """Return whether a folder is part of a job: no cache, environment, or folder of a run."""
    if folder.name in _LEFT_OUT or folder in without or folder.is_symlink():
        return False
    return not (_is_run(folder) or (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").is_dir())


def _is_run(folder: Path) -> bool:
    run = RunFolder(folder)
    return run.journal.is_dir() and run.control.is_dir()


def _git_names(job_folder: Path) -> list[str] | None:
    """Return what git says belongs to the folder; None where there is no repository or git does not answer."""
    if not any((parent / ".git").exists() for parent in (job_folder, *job_folder.parents)):
        return None
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-C", str(job_folder), "ls-files", "-z", "-co", "--exclude-standard"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, capture_output=True, timeout=_GIT_PATIENCE_S, check=False, env=environ)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return list(dict.fromkeys(os.fsdecode(name) for name in done.stdout.split(b"\0") if name))
