"""Looks into images by a process that can do nothing but that; whatever becomes of it, there is an answer."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.errors import CordeeError
from cordee.machine.foreign_files import read_json, regular
from cordee.machine.images.oci import is_layout
from cordee.machine.processes.module_command import module_argv
from cordee.runs.folder import write_atomically
from cordee.systems.scan.images.found import ImageFacts, facts_of
from cordee.systems.scan.node.verdict import Sight
from cordee.systems.scan.seen import file_key

_WORKER = "cordee.systems.scan.images.worker"
_LEAST_S, _BYTES_PER_S = 120.0, 20 << 20
_MOST_BLOBS, _MOST_MEMBERS = 1_000, 10_000
_IMAGE_FILES = ("oci-layout", "index.json", "manifest.json")


class ImageLook(NamedTuple):
    """What a look into an image has found.

    Attributes:
        form: `squashfs`, `archive`, `layout` or `folder`.
        confined: whether the process that looked could open and reach nothing else.
        facts: what was found.
    """

    form: str
    confined: bool
    facts: ImageFacts


def image_form(path: str) -> str | None:
    """Return what kind of image is at a path: `squashfs`, `archive`, `layout`, `folder`; None: it is none."""
    if os.path.isdir(path):
        if is_layout(Path(path)):
            return "layout"
        has_system = any(os.path.lexists(os.path.join(path, name)) for name in ("etc/os-release", "usr/lib/os-release"))
        return "folder" if has_system and os.path.isdir(os.path.join(path, "usr")) and not _is_own_root(path) else None
    try:
        with open(path, "rb", opener=regular) as file:
            first = file.read(262)
            if first[:4] == b"hsqs":
                return "squashfs"
            if first[257:262] != b"ustar":
                return None
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r:") as archive:
                for number, member in enumerate(archive):
                    if number > _MOST_MEMBERS:
                        return None
                    if os.path.normpath(member.name) in _IMAGE_FILES:
                        return "archive"
    except (OSError, tarfile.TarError, ValueError):
        return None
    return None


def look_into(path: str, form: str, tag: str | None = None, allowed: Iterable[str] = ()) -> ImageLook:
    """Return what is in an image; what cannot be read of it is a sight. What was seen of a file is kept in the person's cache.

    Args:
        path: of the image.
        form: as `image_form` says.
        tag: which one, where an archive holds several.
        allowed: names in pickles that are known to be harmless.
    """
    allowed = sorted(set(allowed))
    told = f"image {tag} {','.join(allowed)}"
    key = file_key(path, told) if form in ("squashfs", "archive") else None
    kept = _cache() / f"image-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json" if key else None
    if kept is not None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            answer = read_json(kept)
            return ImageLook(form, bool(answer["confined"]), facts_of(answer))
    look, said = _looked(path, form, {"tag": tag, "allowed": allowed})
    if said is not None and kept is not None and key == file_key(path, told):
        with contextlib.suppress(OSError, CordeeError):
            kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(kept, said, durable=False)
    return look


def _looked(path: str, form: str, more: dict[str, Any]) -> tuple[ImageLook, bytes | None]:
    """Return what a process has found, and its answer; None: it gave none, and may the next time."""
    with contextlib.ExitStack() as opened:
        try:
            descriptors = {name: opened.enter_context(_held(file)) for name, file in _files(path, form)}
        except OSError as error:
            return _failed(form, "image-unreadable", f"it cannot be read: {error.strerror or error}")
        size = sum(os.fstat(one).st_size for one in descriptors.values())
        spool = -1 if form in ("squashfs", "folder") else opened.enter_context(tempfile.TemporaryFile()).fileno()
        order = json.dumps({"given": path, "form": form, "descriptors": descriptors, "spool": spool, **more})
        process = subprocess.Popen(
            module_argv(_WORKER, order, user_site=True),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(*descriptors.values(), *([spool] if spool >= 0 else [])),
        )
        try:
            said, _ = process.communicate(timeout=_LEAST_S + size / _BYTES_PER_S)
        except subprocess.TimeoutExpired:
            return _failed(form, "image-too-much", "looking into it took too long")
        finally:
            process.kill()
            process.wait()
    try:
        answer = json.loads(said)
        return ImageLook(form, bool(answer["confined"]), facts_of(answer)), said
    except (ValueError, KeyError, TypeError, RecursionError):
        return _failed(
            form, "file-scanner-died", f"the process that looked into it has died of it ({process.returncode})"
        )


def _files(path: str, form: str) -> Iterator[tuple[str, str]]:
    """Yield the files that the process is handed, by the names that it knows them by."""
    if form in ("squashfs", "archive"):
        yield "", path
    elif form == "layout":
        yield "index.json", os.path.join(path, "index.json")
        count = 0
        for folder, folders, names in os.walk(os.path.join(path, "blobs")):
            folders.sort()
            for name in sorted(names):
                count += 1
                if count > _MOST_BLOBS:
                    return
                whole = os.path.join(folder, name)
                if os.path.isfile(whole):
                    yield os.path.relpath(whole, path), whole


@contextlib.contextmanager
def _held(file: str) -> Iterator[int]:
    descriptor = regular(file)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _failed(form: str, rule: str, text: str) -> tuple[ImageLook, None]:
    return ImageLook(form, False, ImageFacts((), (Sight(rule, "unknown", text),))), None


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cordee" / "scan" / "images"


def _is_own_root(path: str) -> bool:
    return os.path.samefile(path, "/")
