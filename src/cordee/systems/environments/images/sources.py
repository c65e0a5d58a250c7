"""Where the files of an image are: a folder (an OCI layout, what skopeo downloads) or a tar archive."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import BinaryIO, Protocol

from cordee.machine.foreign_files import regular
from cordee.systems.environments.images.errors import ImageError
from cordee.systems.environments.images.layers.zstd import ZSTD_MAGIC

_MAX_LINKS = 8


class ImageSource(Protocol):
    """Where the files of an image are: a folder or an archive."""

    given: str

    def open(self, name: str) -> tuple[BinaryIO, int]:
        """Return a file and its length in bytes.

        Raises:
            KeyError: there is none of that name.
        """
        ...


class LayoutFolder:
    """An OCI layout as a folder."""

    def __init__(self, folder: Path) -> None:
        self.given = str(folder)
        self._folder = folder

    def open(self, name: str) -> tuple[BinaryIO, int]:
        try:
            file = open(self._folder / name, "rb", opener=regular)  # noqa: SIM115 - handed on
        except (FileNotFoundError, NotADirectoryError):
            raise KeyError(name) from None
        except OSError as error:
            raise ImageError(f"the image cannot be read: {error.strerror}", given=f"{self.given}/{name}") from None
        return file, os.fstat(file.fileno()).st_size


class DownloadSource(LayoutFolder):
    """What skopeo writes as `dir:`: blobs lie beside the manifest, named by the digits of their digests."""

    def open(self, name: str) -> tuple[BinaryIO, int]:
        return super().open(name.removeprefix("blobs/sha256/"))


class ArchiveSource:
    """A tar archive, whose members are read where they lie."""

    def __init__(self, path: Path) -> None:
        self.given = str(path)
        self._path = path
        self._places: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        try:
            with open(path, "rb", opener=regular) as file, tarfile.open(fileobj=file, mode="r:") as archive:
                for member in archive:
                    self._note(member)
        except tarfile.TarError as error:
            raise _no_archive(path, error) from None
        except OSError as error:
            raise ImageError(f"the archive cannot be read: {error.strerror or error}", given=str(path)) from None

    def _note(self, member: tarfile.TarInfo) -> None:
        name = os.path.normpath(member.name).lstrip("/")
        if member.isreg():
            self._places[name] = member.offset_data, member.size
        elif member.issym():
            self._links[name] = os.path.normpath(os.path.join(os.path.dirname(name), member.linkname))
        elif member.islnk():
            self._links[name] = os.path.normpath(member.linkname)

    def open(self, name: str) -> tuple[BinaryIO, int]:
        name = os.path.normpath(name)
        for _ in range(_MAX_LINKS):
            name = self._links.get(name, name)
        offset, size = self._places[name]
        file = open(self._path, "rb", opener=regular)  # noqa: SIM115 - handed on
        file.seek(offset)
        return file, size


def _no_archive(path: Path, error: Exception) -> ImageError:
    with open(path, "rb", opener=regular) as file:
        first = file.read(6)
    for magic, what, command in (
        (b"\x1f\x8b", "gzip", "gunzip -k"),
        (ZSTD_MAGIC, "zstd", "zstd -d"),
        (b"BZh", "bzip2", "bunzip2 -k"),
        (b"\xfd7zXZ", "xz", "unxz -k"),
    ):
        if first.startswith(magic):
            return ImageError(
                f"the archive as a whole is compressed ({what}), so its parts cannot be found",
                given=str(path),
                next=f"{command} {path}",
            )
    return ImageError(f"the archive is no tar file, or cut off: {error}", given=str(path))
