"""The process that looks into an image: `python -m`, what it may read as open descriptors, what it found as JSON on its output.

It opens nothing itself (where the kernel can hold it to that) unless the image is a folder, and its memory and time are limited.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO, cast

from cordee.core.errors import CordeeError
from cordee.machine.images.oci import this_architecture
from cordee.machine.images.sources import ArchiveSource, ImageSource
from cordee.machine.images.zstd import libzstd
from cordee.machine.squashfs.reader import SquashfsFault, SquashfsNode, SquashfsReader
from cordee.systems.scan.images.found import ImageFinder, facts_document, is_wanted, may_be_model
from cordee.systems.scan.images.layers import look_at_age, look_at_layers
from cordee.systems.scan.images.root import look_at_root
from cordee.systems.scan.node.confinement import confine, limit
from cordee.systems.scan.node.formats.pickle_globals import PickleGlobals
from cordee.systems.scan.node.scanner import Scanner
from cordee.systems.scan.node.source import Source
from cordee.systems.scan.node.worker import import_all

MEMORY_BYTES, SPOOL_BYTES = 3 << 30, 32 << 30
_TEXTS_BYTES = 512 << 20


class DescriptorFile(io.RawIOBase):
    """A file by a descriptor that others use as well: it has a position of its own, and asks the kernel for nothing but its bytes."""

    def __init__(self, descriptor: int, size: int) -> None:
        super().__init__()
        self._descriptor, self._size, self._at = descriptor, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._descriptor, len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence, self._size)
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at


class OpenedSource:
    """The files of an OCI layout, open already."""

    def __init__(self, given: str, descriptors: dict[str, int]) -> None:
        self.given = given
        self._files = {name: (one, os.fstat(one).st_size) for name, one in descriptors.items()}

    def open(self, name: str) -> tuple[BinaryIO, int]:
        descriptor, size = self._files[name]
        return cast(BinaryIO, DescriptorFile(descriptor, size)), size


class _FileIn(Source):
    """A file within a squashfs."""

    def __init__(self, reader: SquashfsReader, node: SquashfsNode) -> None:
        super().__init__(node.size)
        self._reader, self._node = reader, node

    def at(self, offset: int, count: int) -> bytes:
        return self._reader.read(self._node, count, offset) if offset >= 0 else b""


def main() -> int:
    """Look into one image."""
    order = json.loads(sys.argv[1])
    given, form, descriptors = str(order["given"]), str(order["form"]), dict(order["descriptors"])
    import_all()
    "".encode("idna")
    libzstd()
    this_architecture()
    limit(MEMORY_BYTES, SPOOL_BYTES)
    finder = ImageFinder(given, PickleGlobals(order["allowed"]))
    confined = False
    try:
        if form == "squashfs":
            reader = SquashfsReader(descriptors[""])
            confined = confine()
            _squashfs(reader, finder)
        elif form == "folder":
            with Scanner(order["allowed"]) as scanner:
                look_at_root(given, finder, scanner)
        else:
            opened = OpenedSource(given, descriptors)
            confined = confine()
            source: ImageSource = opened
            if form == "archive":
                source = ArchiveSource(Path(given), lambda: opened.open("")[0])
            look_at_layers(source, finder, order["tag"], int(order["spool"]))
    except SquashfsFault as fault:
        finder.saw("image-unreadable", "unknown", f"it cannot be read to its end: {fault}")
    except CordeeError as error:
        finder.saw("image-unreadable", "unknown", f"{error.text}" + (f" ({error.next})" if error.next else ""))
    except (MemoryError, RecursionError):
        finder.saw("image-too-much", "unknown", "it takes more memory than a scan may have")
    except OSError as error:
        finder.saw("image-unreadable", "unknown", f"it cannot be read: {error.strerror or error}")
    sys.stdout.write(json.dumps({"confined": confined, **facts_document(finder.facts())}))
    sys.stdout.flush()
    return 0


def _squashfs(reader: SquashfsReader, finder: ImageFinder) -> None:
    texts = 0
    look_at_age(time.time() - reader.made_at if reader.made_at else 0.0, finder)
    for node in reader.walk():
        capable = node.attributes is not None and "security.capability" in reader.attributes(node)
        finder.name(node.path, node.kind, node.mode, node.uid, capable=capable)
        if node.kind != "file":
            continue
        if may_be_model(node.path, node.size):
            finder.keep(finder.model(node.path, _FileIn(reader, node)))
        if not is_wanted(node.path, node.size):
            continue
        texts += node.size
        if texts > _TEXTS_BYTES:
            finder.saw("image-too-much", "unknown", "it has more text than could be looked at")
            continue
        finder.content(node.path, reader.read(node, node.size))


if __name__ == "__main__":
    sys.exit(main())
