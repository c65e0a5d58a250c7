"""What the store writes down of an image and of a name, and how it is read back."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cordee.core.units import utc_text
from cordee.machine.foreign_files import read_json, regular
from cordee.machine.image_config import ImageConfig
from cordee.machine.images.errors import ImageError

IMAGE_SCHEMA = "cordee.image/1"
NAME_SCHEMA = "cordee.image-name/1"
ROOT_FILE = "root.squashfs"
SIDECAR = "image.json"


@dataclass(frozen=True)
class StoredImage:
    """An image of the store.

    Attributes:
        digest: what it is known by.
        path: its squashfs file.
        config: what the image says of itself.
        origin: the reference or path that it was imported from first.
        imported_at: UTC.
        size_bytes: of the squashfs file.
        file_digest: `sha256:...` of the squashfs file, for `verify`.
        made_by: version of the tool.
        contents: counts of what is in it and what was left out.
        used_at: epoch seconds of the last `locate`.
    """

    digest: str
    path: Path
    config: ImageConfig
    origin: str
    imported_at: str
    size_bytes: int
    file_digest: str
    made_by: str
    contents: dict[str, int]
    used_at: float

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(self), "path": str(self.path), "used_at": utc_text(self.used_at)}


@dataclass(frozen=True)
class PinnedName:
    """A name and the digest it is pinned to since `pinned_at` (UTC)."""

    name: str
    digest: str
    pinned_at: str


def read_image(place: Path) -> StoredImage | None:
    """Return the image in a folder of the store; None: there is none, it is cut off, or its record is torn or of a newer schema.

    Raises:
        OSError: it cannot be read.
    """
    try:
        sidecar = place / SIDECAR
        document = read_json(sidecar)
        config = document["config"]
        if document["schema"] != IMAGE_SCHEMA or (place / ROOT_FILE).stat().st_size != document["size_bytes"]:
            return None
        return StoredImage(
            digest=document["digest"],
            path=place / ROOT_FILE,
            config=ImageConfig(
                **{**config, "entrypoint": tuple(config["entrypoint"]), "command": tuple(config["command"])}
            ),
            origin=document["origin"],
            imported_at=document["imported_at"],
            size_bytes=document["size_bytes"],
            file_digest=document["file_digest"],
            made_by=document["made_by"],
            contents=document["contents"],
            used_at=sidecar.stat().st_mtime,
        )
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def read_name(path: Path) -> PinnedName | None:
    """Return a name from its file; None: there is none, or it is torn.

    Raises:
        OSError: it cannot be read.
    """
    try:
        document = read_json(path)
        return PinnedName(document["name"], document["digest"], document["pinned_at"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def file_digest(path: Path) -> str:
    """Return the digest of a file."""
    with open(path, "rb", opener=regular) as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def verify(image: StoredImage) -> None:
    """Read an image whole and compare it with what was imported.

    Raises:
        ImageError: it is another file now.
    """
    same_as_imported(image, image.path)


def same_as_imported(image: StoredImage, file: Path) -> None:
    """Compare a file with what was imported as an image, which it is, or is a copy of.

    Raises:
        ImageError: it is another one.
    """
    try:
        found = file_digest(file)
    except OSError as error:
        raise ImageError(f"the image cannot be read: {error.strerror}", given=str(file)) from None
    if found != image.file_digest:
        raise ImageError(
            "the image has been damaged since it was imported",
            given=f"{image.path}: {found}",
            allowed=image.file_digest,
            next=f"cordee env rm --force {image.digest}, and pull or build it again",
        )
