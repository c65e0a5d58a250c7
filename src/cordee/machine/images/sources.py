"""Where the files of an image are: a folder (an OCI layout, what skopeo downloads) or a tar archive."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol

from cordee.machine.foreign_files import regular
from cordee.machine.images.errors import ImageError
from cordee.machine.images.zstd import ZSTD_MAGIC

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
    """A tar archive, whose members are read where they lie.

    Args:
        path: of it.
        opened: gives it, open at its beginning, to whoever can open no files; None: it is opened by its path.
    """

    def __init__(self, path: Path, opened: Callable[[], BinaryIO] | None = None) -> None:
        self.given = str(path)
        self._opened = opened or (lambda: open(path, "rb", opener=regular))  # noqa: SIM115 - handed on
        self._places: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        try:
            with self._opened() as file, tarfile.open(fileobj=file, mode="r:") as archive:
                for member in archive:
                    self._note(member)
        except tarfile.TarError as error:
            with self._opened() as file:
                raise _no_archive(path, file.read(6), error) from None
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
        file = self._opened()
        file.seek(offset)
        return file, size


def _no_archive(path: Path, first: bytes, error: Exception) -> ImageError:
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
