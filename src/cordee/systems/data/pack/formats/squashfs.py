"""One squashfs image of all files under their own names, for code that opens paths."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cordee.core.errors import DataError, UsageError
from cordee.machine.squashfs.entry import SquashfsEntry as Node
from cordee.machine.squashfs.errors import PackError
from cordee.machine.squashfs.image import SquashFile
from cordee.systems.data.node.shards.entries import Sample
from cordee.systems.data.pack._base import PackOptions, PackResult, Target, Tell, Unreadable
from cordee.systems.data.pack.formats.content import pieces, without_unreadable
from cordee.systems.data.pack.sidecar import Sidecar
from cordee.systems.data.pack.unreadable import refuse_unreadable

if TYPE_CHECKING:
    from cordee.systems.data.pack._base import PackPlan

COMPRESSION = "zstd"
_ENDINGS = (".squashfs", ".sqsh", ".sqfs")


class Squashfs(Target):
    """Packs to one file. It is read back before it appears; a call that is killed leaves nothing that counts."""

    def pack(self, plan: PackPlan, to: str, options: PackOptions, tell: Tell) -> PackResult:
        began = time.monotonic()
        path = _path(to)
        sidecar = Sidecar(str(path), {"target": "squashfs", "fingerprint": plan.fingerprint})
        if path.exists() and not options.restart:
            return sidecar.packed()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            sidecar.forget()
            made, left_out = without_unreadable(
                plan,
                list(plan.samples()),
                options.skip_unreadable,
                lambda samples: _write(plan, samples, path, options, tell),
            )
        except Unreadable as fault:
            refuse_unreadable(plan, fault)
        except PackError as error:
            raise DataError(
                f"the image cannot be made: {error.text}",
                given=error.given,
                next="see that there is room and squashfs-tools 4.5 or newer, and pack again: nothing was left there",
            )
        except OSError as error:
            raise DataError(
                f"the image cannot be made: {error.strerror}", given=to, next="choose another place by --to"
            )
        reasons = {**plan.left_out, **({"unreadable": left_out} if left_out else {})}
        seconds = time.monotonic() - began
        return sidecar.keep(PackResult(str(path), None, 1, made, path.stat().st_size, seconds, left_out=reasons))


def _path(to: str) -> Path:
    if "://" in to or not to.endswith(_ENDINGS) or os.path.isdir(to):
        raise UsageError(
            "an image is one file", given=f"--to {to}", allowed=f"a path that ends with {', '.join(_ENDINGS)}"
        )
    return Path(os.path.abspath(to))


def _write(plan: PackPlan, samples: list[Sample], path: Path, options: PackOptions, tell: Tell) -> int:
    """Write the image and return how many samples are in it."""
    folders: set[bytes] = set()
    files: set[bytes] = set()
    done_bytes = 0
    with SquashFile(path, COMPRESSION, options.workers, made_s=0) as squash:
        for folder in plan.empty_folders:
            for above in _folders(folder + b"/", folders):
                squash.add(above)
        for count, sample in enumerate(samples, 1):
            for entry in sample.entries:
                if entry.name in files:  # a file that a table names in several rows
                    continue
                files.add(entry.name)
                for above in _folders(entry.name, folders):
                    squash.add(above)
                stamp_s = max(0, entry.stamp_ns // 10**9)
                node = Node(os.fsdecode(entry.name), "file", 0o644, stamp_s, entry.length)
                squash.add_pieces(node, pieces(plan, entry))
                done_bytes += entry.length
            tell(count, done_bytes)
        squash.finish()
        squash.put(options.restart)
    return len(samples)


def _folders(name: bytes, known: set[bytes]) -> Iterator[Node]:
    """Give the folders above a name that are not there yet, the outer before the inner."""
    parts = name.split(b"/")[:-1]
    for depth in range(1, len(parts) + 1):
        folder = b"/".join(parts[:depth])
        if folder not in known:
            known.add(folder)
            yield Node(os.fsdecode(folder), "folder", 0o755, 0)


TARGET = Squashfs()
