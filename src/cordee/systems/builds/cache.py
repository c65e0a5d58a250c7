"""What builds keep between them, by digest: packages, layers, bases. All of it can be made again.

```
blobs/sha256-<digest>         files of packages
layers/<key>/diff             the files of a layer, as the next step sees them
layers/<key>/layer.json       its digest and what it holds
archives/sha256-<digest>      the same as an archive, as images carry it
images/sha256-<digest>/       images that were made, as OCI layouts
stems/<...>/                  squashfs files of packages that images with changed lines over them are made from
bases/sha256-<digest>/        what an image begins with, as an OCI layout
work/<process>-<...>/         what is being made
```

A layer appears whole, by one rename. Whoever is killed leaves a folder in `work`, which the next build removes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.documents.config_paths import cache_folder
from cordee.core.errors import UsageError
from cordee.machine.foreign_files import read_json
from cordee.systems.builds.errors import BuildError

VARIABLE = "CORDEE_BUILD_CACHE"
# A folder of that age is held by whoever works in it.
_SETTLED_S = 10.0


class CachedLayer(NamedTuple):
    """One layer of the cache.

    Attributes:
        name: of its folder below `layers`.
        step: what made it, for people.
        digest: of its archive.
        bytes, files, removed: of the archive.
        left_out: what it cannot hold.
        owners_kept: whether files kept the owners that the step set.
        fresh: whether it was made now.
        seconds: what making it took.
    """

    name: str
    step: str
    digest: str
    bytes: int
    files: int
    removed: int
    left_out: tuple[str, ...]
    owners_kept: bool
    fresh: bool = False
    seconds: float = 0.0


class BuildCache:
    """The cache of one person on one machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.layers_folder = folder / "layers"
        self.blobs_folder = folder / "blobs"
        self.archives_folder = folder / "archives"
        self.images_folder = folder / "images"
        self.stems_folder = folder / "stems"
        self.bases_folder = folder / "bases"
        self.work_folder = folder / "work"

    def open(self) -> BuildCache:
        """Make the folders and remove what was interrupted.

        Raises:
            BuildError: they cannot be written.
        """
        with self.faults():
            for path in (
                self.layers_folder,
                self.blobs_folder,
                self.archives_folder,
                self.bases_folder,
                self.images_folder,
                self.stems_folder,
                self.work_folder,
            ):
                path.mkdir(parents=True, exist_ok=True, mode=0o700)
                _refuse_others(path)
            for left in (*self.work_folder.iterdir(), *self.stems_folder.glob(".*")):
                if left.is_dir() and time.time() - left.stat().st_mtime > _SETTLED_S and _is_free(left):
                    remove_tree(left)
        return self

    def blob(self, digest: str) -> Path:
        """Return where a file of that digest is, if it is."""
        return self.blobs_folder / digest.replace(":", "-")

    def archive(self, digest: str) -> Path:
        """Return where the archive of a layer is, if it is."""
        return self.archives_folder / digest.replace(":", "-")

    def keep_blob(self, path: Path) -> tuple[str, int]:
        """Move a file into the cache; return its digest and bytes."""
        with self.faults():
            digest, size = file_digest(path), path.stat().st_size
            os.chmod(path, 0o644)
            path.replace(self.blob(digest))
        return digest, size

    def layer(self, key: str) -> CachedLayer | None:
        """Return the layer of a key, if all of it is here."""
        try:
            document = read_json(self.layers_folder / key / "layer.json")
            layer = CachedLayer(**{**document, "left_out": tuple(document["left_out"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None
        whole = self.archive(layer.digest).is_file() and (self.layers_folder / key / "diff").is_dir()
        return layer if whole else None

    def keep_layer(self, key: str, step: str, upper: Path, archive: Path, packed: Mapping[str, Any]) -> CachedLayer:
        """Take a layer into the cache; it is there whole, or not at all."""
        with self.faults():
            layer = CachedLayer(
                key,
                step,
                str(packed["digest"]),
                int(packed["bytes"]),
                int(packed["files"]),
                int(packed["removed"]),
                tuple(packed["left_out"]),
                bool(packed["owners_kept"]),
            )
            archive.replace(self.archive(layer.digest))
            made = upper.parent / "layer"
            made.mkdir()
            mode = stat.S_IMODE(upper.stat().st_mode)
            upper.chmod(mode | 0o700)  # a folder is only moved by who may write in it
            upper.rename(made / "diff")
            (made / "diff").chmod(mode)
            (made / "layer.json").write_text(json.dumps(layer._asdict()))
            place = self.layers_folder / key
            if place.exists():  # a part of it was missing
                place.rename(upper.parent / "before")
            made.rename(place)
        return layer

    def image(self, digest: str) -> Path:
        """Return where the layout of an image is, if it was made here."""
        return self.images_folder / digest.replace(":", "-")

    def keep_image(self, digest: str, layout: Path) -> Path:
        """Take a finished layout into the cache, and return where it is."""
        place = self.image(digest)
        if _sizes(place) != _sizes(layout):  # it is new, or sites' purges of old files have taken a part of it
            with contextlib.suppress(FileNotFoundError):
                place.rename(layout.with_name("before"))
            with contextlib.suppress(OSError):  # another build was first
                layout.rename(place)
        return place

    @contextlib.contextmanager
    def temporary(self) -> Iterator[Path]:
        """Give a folder of this process, which is gone afterwards."""
        with self.faults():
            folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self.work_folder))
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            remove_tree(folder)
            os.close(held)

    @contextlib.contextmanager
    def making(self, key: str, say: Callable[[str], None]) -> Iterator[None]:
        """Hold what is made under a key, waiting for whoever makes it now."""
        with self.faults(), (self.work_folder / f"{key}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another build makes this layer now; waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def faults(self) -> Iterator[None]:
        """Turn what the file system says into a BuildError."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise BuildError(
                "there is no space left for the build" if full else f"the build failed: {error.strerror or error}",
                given=str(self.folder if full else error.filename or self.folder),
                next=f"make room ({self.folder} can be removed whole), or name another folder with {VARIABLE}"
                if full
                else f"name a folder that you may write with {VARIABLE}",
            ) from None


def _sizes(layout: Path) -> dict[str, int]:
    """Return the files of a layout with their sizes; an index may be of another name for the same image."""
    files = (path for path in layout.rglob("*") if path.is_file())
    return {str(path.relative_to(layout)): path.stat().st_size * (path.name != "index.json") for path in files}


def own_cache(environ: Mapping[str, str] = os.environ) -> BuildCache:
    """Return the person's cache: `CORDEE_BUILD_CACHE`, else a folder below the cache of Cordée.

    Raises:
        UsageError: the variable is a relative path.
    """
    given = environ.get(VARIABLE, "")
    if given and not os.path.isabs(given):
        raise UsageError(f"{VARIABLE} is a relative path", given=given, allowed="an absolute path")
    return BuildCache(Path(given) if given else cache_folder(environ) / "build")


def file_digest(path: Path) -> str:
    """Return `sha256:...` of a file."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def remove_tree(path: Path) -> None:
    """Remove a folder whose owner has taken rights on it from themselves, as the kernel does with an overlay's."""
    # The tool, since folders may be deeper than Python's recursion, and longer than a path.
    open_first = ["find", str(path), "-type", "d", "!", "-perm", "-700", "-exec", "chmod", "u+rwx", "{}", ";"]
    for words in (open_first, ["rm", "-rf", "--", str(path)]):
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _refuse_others(path: Path) -> None:
    """Raise a BuildError where others could put another layer in the place of one's own."""
    found = path.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise BuildError(
            "other users can write to the cache of builds",
            given=str(path),
            allowed="folders that only you can write to",
            next=f"name a folder of your own with {VARIABLE}",
        )


def _is_free(folder: Path) -> bool:
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(held)
