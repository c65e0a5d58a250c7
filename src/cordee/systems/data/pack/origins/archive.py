"""Archives as origins: tar in any compression, and zip.

The bytes of members that are not compressed are read where they lie in the archive. A compressed tar can only be read from
its beginning: it is decompressed once, into a file beside the result, which is removed when all is packed.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import subprocess
import threading
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from cordee.core.errors import CorruptDataError, DataError
from cordee.systems.data.node.shards.entries import Listing, PackedEntry
from cordee.systems.data.node.shards.members import Damaged, members
from cordee.systems.data.pack._base import CHUNK_BYTES, SampleOrigin
from cordee.systems.data.pack.places import work_folder
from cordee.systems.data.pack.shards.file import open_shard
from cordee.systems.data.pack.write_faults import writing_to

_REPLACED = "replaced by a later member of the same name"
_UNSAFE = "leads out of the archive"


class _Archive(SampleOrigin):
    """What all archives share: one file, which must stay as it is."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.name = os.path.basename(path).split(".")[0] or "data"
        self._stamp = self._look()

    def check(self) -> None:
        if self._look() != self._stamp:
            raise DataError(
                "the archive has changed while it was packed", given=self.path, next="pack it again: --restart"
            )

    def _look(self) -> tuple[int, int]:
        try:
            about = os.stat(self.path)
        except OSError as error:
            raise DataError(f"the archive cannot be read: {error.strerror}", given=self.path) from None
        return about.st_size, about.st_mtime_ns

    def _damaged(self, reason: str) -> CorruptDataError:
        return CorruptDataError(
            f"the archive is damaged: {reason}",
            given=self.path,
            next="get it again, or unpack what can be read by hand",
        )

    def _listing(self, found: dict[bytes, PackedEntry], left_out: dict[str, list[str]], folders: set[bytes]) -> Listing:
        """Return the listing of members by name; folders that hold nothing are kept."""
        for name in found:
            while name:
                name = name.rpartition(b"/")[0]
                folders.discard(name)
        empty = {name for name in folders if not any(other.startswith(name + b"/") for other in folders)}
        size, stamp_ns = self._stamp
        return Listing(
            list(found.values()), empty_folders=sorted(empty), left_out=left_out, fingerprint=f"{size} {stamp_ns}"
        )


class TarOrigin(_Archive):
    """A tar file; a compressed one is decompressed into `spool` first."""

    def __init__(self, path: str, spool: Path | None) -> None:
        super().__init__(path)
        self._spool = spool

    def listing(self) -> Listing:
        """Return every regular member; the last one counts where a name occurs again, as it does for tar.

        Raises:
            CorruptDataError: the archive is damaged or cut off.
        """
        path = self._plain()
        found: dict[bytes, PackedEntry] = {}
        left_out: dict[str, list[str]] = {}
        folders: set[bytes] = set()
        shard = open_shard(path)
        try:
            for member in members(shard.read, shard.size):
                name = _tidy(member.original or member.name)
                if member.kind == "folder" and name:
                    folders.add(name)
                elif member.kind == "sparse":
                    raise DataError(
                        "a member of the archive is stored with holes (GNU sparse), and only tar reads it",
                        given=f"{self.path}: {_text(member.name)}",
                        next="unpack the archive with tar, and pack the folder",
                    )
                elif member.kind == "hard link" and (target := found.get(_tidy(member.link or b""))) and name:
                    found[name] = target._replace(name=name)
                elif member.kind in ("hard link", "other"):
                    left_out.setdefault("no regular file", []).append(_text(member.name))
                elif member.kind == "file" and not member.is_label:
                    if not name:
                        left_out.setdefault(_UNSAFE, []).append(_text(member.name))
                        continue
                    if name in found:
                        left_out.setdefault(_REPLACED, []).append(_text(name))
                    found[name] = PackedEntry(name, member.length, os.fsencode(path), member.offset)
        except Damaged as fault:
            raise self._damaged(str(fault)) from None
        finally:
            shard.close()
        return self._listing(found, left_out, folders)

    def close(self) -> None:
        if self._spool is not None:
            shutil.rmtree(self._spool.parent, ignore_errors=True)

    def _plain(self) -> str:
        """Return the path of the archive without compression."""
        if self._spool is None:
            return self.path
        mark = self._spool.with_name(f"{self._spool.name}.{self._stamp[0]}.{self._stamp[1]}")
        if not (mark.exists() and self._spool.exists()):
            with writing_to(str(self._spool.parent)):
                self._spool.parent.mkdir(parents=True, exist_ok=True)
                self._spool.unlink(missing_ok=True)
            partial = self._spool.with_name(self._spool.name + ".partial")
            self._decompress(partial)
            partial.rename(self._spool)
            mark.touch()
        return str(self._spool)

    def _decompress(self, partial: Path) -> None:
        try:
            with partial.open("wb") as plain, _decompressed(self.path) as packed:
                shutil.copyfileobj(packed, plain, CHUNK_BYTES)
        except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, ValueError) as error:
            partial.unlink(missing_ok=True)
            raise self._damaged(str(error)) from None
        except OSError as error:
            partial.unlink(missing_ok=True)
            if error.errno is None:  # bz2 says so of bytes that are none of its own
                raise self._damaged(str(error)) from None
            raise DataError(
                f"the archive cannot be decompressed: {error.strerror}",
                given=os.fsdecode(error.filename or partial),
                next="see that it can be read, and that there is room beside the target: it is decompressed there for a while",
            ) from None


class ZipOrigin(_Archive):
    """A zip file; members that are stored are read where they lie, others are inflated."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._own = threading.local()

    def listing(self) -> Listing:
        """Return every file in the archive.

        Raises:
            CorruptDataError: the archive is damaged. DataError: it is encrypted.
        """
        found: dict[bytes, PackedEntry] = {}
        left_out: dict[str, list[str]] = {}
        folders: set[bytes] = set()
        try:
            with zipfile.ZipFile(self.path) as archive:
                infos = archive.infolist()
        except zipfile.BadZipFile as error:
            raise self._damaged(str(error)) from None
        for number, info in enumerate(infos):
            raw = info.filename.encode("utf-8" if info.flag_bits & 0x800 else "cp437", "surrogateescape")
            name = _tidy(raw)
            if info.flag_bits & 1:
                raise DataError("the archive is encrypted", given=self.path, next="decrypt it first")
            if info.is_dir():
                folders.add(name)
            elif info.external_attr >> 28 == 0o12:
                left_out.setdefault("link, not followed", []).append(_text(raw))
            elif not name:
                left_out.setdefault(_UNSAFE, []).append(_text(raw))
            else:
                if name in found:
                    left_out.setdefault(_REPLACED, []).append(_text(name))
                found[name] = PackedEntry(name, info.file_size, None, number)
        folders.discard(b"")
        return self._listing(found, left_out, folders)

    def chunks(self, entry: PackedEntry) -> Iterator[bytes]:
        """Yield a member's bytes; zip's own check sum is compared at its end."""
        archive = self._archive()
        try:
            with archive.open(archive.infolist()[entry.offset]) as member:
                while chunk := member.read(CHUNK_BYTES):
                    yield chunk
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise OSError(None, f"the archive is damaged there: {error}") from None

    def _archive(self) -> zipfile.ZipFile:
        """Return the archive, open in this process and thread."""
        if getattr(self._own, "process", None) != os.getpid():
            self._own.process, self._own.archive = os.getpid(), zipfile.ZipFile(self.path)
        found: zipfile.ZipFile = self._own.archive
        return found


def _tidy(name: bytes) -> bytes:
    """Return a member's name as a path below the archive; empty where it leads out of it, or is the archive itself."""
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    return b"" if name.startswith(b"/") or b".." in parts or b"\0" in name else b"/".join(parts)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


class _Zstd:
    """The output of `zstd -dc`."""

    def __init__(self, path: str) -> None:
        if shutil.which("zstd") is None:
            raise DataError("the program zstd is missing", given=path, next="install zstd")
        self._process = subprocess.Popen(["zstd", "-dcq", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self._process.kill()
        _, said = self._process.communicate()
        if kind is None and self._process.returncode:
            raise EOFError(said.decode(errors="replace").strip())


def _decompressed(path: str) -> Any:
    ending = path.lower().rpartition(".")[2]
    match ending:
        case "bz2":
            return bz2.open(path)
        case "xz":
            return lzma.open(path)
        case "zst":
            return _Zstd(path)
        case _:
            from isal import igzip

            return igzip.open(path)


def open_origin(address: str, options: dict[str, Any]) -> SampleOrigin:
    """Return the origin of an archive; option `work`: where the result goes, beside which a compressed tar is spooled."""
    if address.lower().endswith(".zip"):
        return ZipOrigin(address)
    if address.lower().endswith(".tar"):
        return TarOrigin(address, None)
    folder = work_folder(str(options.get("work") or address + ".packed"))
    return TarOrigin(address, folder.with_name(folder.name + "-source") / "source.tar")
