"""What an image begins with: kept by its digest, so that it can vanish, change or be out of reach afterwards."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.errors import CordeeError
from cordee.core.ports.images import ImageAtHand, ImageWorkshop
from cordee.machine.foreign_files import read_json
from cordee.machine.images.blobs import open_blob
from cordee.machine.images.errors import ImageError
from cordee.machine.images.oci import OciImage, open_image, this_architecture
from cordee.systems.builds.cache import BuildCache, file_digest
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.layout import LayerBlob, image_config, link_or_copy, write_layout

_PIECE = _LEAST_BYTES = 1 << 20
SCRATCH = "scratch"
# What the step says of a file in the image that is mounted at `base`.
_CLOSED = re.compile(r"Permission denied: b?'[^']*?/base/([^']*)'")


class BaseImage(NamedTuple):
    """An image that others begin with.

    Attributes:
        digest: what it is locked by.
        root: its squashfs file.
        layers: the lowest first.
        config: `Env` as a table, `WorkingDir`, `Entrypoint`, `Cmd`.
    """

    digest: str
    root: Path
    layers: tuple[LayerBlob, ...]
    config: dict[str, Any]


class BaseKeeper:
    """Gets base images and keeps them.

    Args:
        workshop: who knows images.
        cache: where they are kept.
        cluster: whose profile counts.
        say: told what is done.
    """

    def __init__(self, workshop: ImageWorkshop, cache: BuildCache, cluster: str, say: Callable[[str], None]) -> None:
        self._workshop, self._cache, self._cluster, self._say = workshop, cache, cluster, say

    def kept(self, digest: str) -> BaseImage | None:
        """Return the base of that digest, if all of it is here."""
        folder = self._cache.bases_folder / digest.replace(":", "-")
        try:
            document = read_json(folder / "base.json")
            layers = tuple(
                LayerBlob(
                    folder / layer["file"], layer["digest"], layer["bytes"], layer["diff_id"], layer["created_by"]
                )
                for layer in document["layers"]
            )
            base = BaseImage(str(document["digest"]), folder / "root.squashfs", layers, dict(document["config"]))
            base.config["Env"] = dict(base.config["Env"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return base if base.root.is_file() and all(layer.path.is_file() for layer in layers) else None

    def get(self, image: str, locked: str, offline: bool) -> BaseImage:
        """Return the base that a recipe names.

        Args:
            image: as the recipe has it, paths from the root on.
            locked: its digest; empty: it is not locked yet.
            offline: nothing is fetched.

        Raises:
            BuildError: it is not to be had, or another one than was locked.
        """
        found = self.kept(locked) if locked else None
        if found is not None:
            return found
        base = self._empty() if image == SCRATCH else self._given(image, offline)
        if locked and base.digest != locked:
            raise BuildError(
                "the base image is another one than was locked",
                given=f"{image} is {base.digest} now",
                allowed=locked,
                next="bring the locked one back, name it by its digest, or take what is there now: cordee env lock",
            )
        return base

    def _given(self, image: str, offline: bool, called: str = "") -> BaseImage:
        try:
            hand = self._workshop.at_hand(image, self._cluster, not offline, self._say)
        except ImageError as error:
            raise BuildError(
                f"the base image is not to be had: {error.text}", given=error.given, next=error.next
            ) from None
        base = self.kept(hand.digest) if hand.digest else None
        return base or self._keep(image, hand, called or image)

    def _empty(self) -> BaseImage:
        with self._cache.temporary() as work, self._cache.faults():
            nothing = work / "nothing"
            nothing.mkdir()
            nothing.chmod(0o755)
            os.utime(nothing, (0, 0))
            return self._given(str(nothing), offline=True, called=SCRATCH)

    def _keep(self, image: str, hand: ImageAtHand, called: str) -> BaseImage:
        self._say(f"base image {called}")
        with self._cache.temporary() as work, self._cache.faults():
            made = work / "kept"
            made.mkdir()
            config = {
                "Env": dict(hand.env),
                "WorkingDir": hand.workdir,
                "Entrypoint": list(hand.entrypoint),
                "Cmd": list(hand.command),
            }
            layers = self._layers_of(image, made) or [self._packed(image, hand, work, made)]
            digest = hand.digest or layers[0].digest
            root = Path(hand.path) if hand.kind == "squashfs" else self._squashed(work, layers, config)
            if hand.kind == "squashfs" and not hand.digest:
                root = self._squashed(work, layers, config)
            link_or_copy(root, made / "root.squashfs")
            described = [{**layer._asdict(), "file": layer.path.name} for layer in layers]
            for each in described:
                del each["path"]
            document = {"digest": digest, "config": config, "layers": described}
            (made / "base.json").write_text(json.dumps(document))
            place = self._cache.bases_folder / digest.replace(":", "-")
            if place.exists():
                place.rename(work / "before")
            made.rename(place)
        base = self.kept(digest)
        if base is None:
            raise BuildError("the base image has gone while it was kept", given=digest, next="build again")
        return base

    def _layers_of(self, image: str, made: Path) -> list[LayerBlob]:
        """Return the layers of an OCI archive or layout as they are; none of anything else."""
        path = self._workshop.is_path(image)
        if not path:
            return []
        try:
            found = open_image(Path(path))
            diff_ids = list((found.document.get("rootfs") or {}).get("diff_ids") or ())
            if len(diff_ids) != len(found.layers) or not all(layer.digest for layer in found.layers):
                return []
            return [self._copied(found, index, diff_ids[index], made) for index in range(len(diff_ids))]
        except CordeeError:
            return []

    def _copied(self, image: OciImage, index: int, diff_id: str, made: Path) -> LayerBlob:
        layer = image.layers[index]
        assert layer.digest is not None
        blob = open_blob(image.source, layer.digest, layer.size_bytes, f"layer {index + 1}")
        path = made / layer.digest.replace(":", "-")
        with path.open("wb") as out:
            while piece := blob.read(_PIECE):
                out.write(piece)
        return LayerBlob(path, layer.digest, path.stat().st_size, diff_id, "base image")

    def _packed(self, image: str, hand: ImageAtHand, work: Path, made: Path) -> LayerBlob:
        order = {"do": "pack", "base": hand.path, "work": str(work), "archive": str(made / "layer")}
        order |= {"epoch": 2**32 - 1, "since_ns": 2**63 - 1}  # type: ignore[dict-item]
        # Images of a store belong to the person, others to root as a rule.
        for own in (bool(hand.digest), not hand.digest):
            (work / "order.json").write_text(json.dumps({**order, "own": own}))
            words = self._workshop.step_argv(work / "order.json")
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if not done.returncode:
                break
        else:
            if closed := _CLOSED.search(done.stderr):
                raise BuildError(
                    "the base image has files that only their owner may read, and their owner is not you",
                    given=f"/{closed[1]} in {image}",
                    allowed="a squashfs file that all may read in, an image of a registry, an OCI archive or layout",
                    next="take it from the registry, or have root write it anew with those files removed or readable",
                )
            # Without user namespaces the kernel says the same.
            if os.strerror(errno.ENOSPC) in done.stderr and shutil.disk_usage(work).free < _LEAST_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise BuildError(f"the base image cannot be read: {done.stderr.strip()[-500:]}", given=image)
        digest = file_digest(made / "layer")
        path = (made / "layer").rename(made / digest.replace(":", "-"))
        return LayerBlob(path, digest, path.stat().st_size, digest, "base image")

    def _squashed(self, work: Path, layers: list[LayerBlob], config: dict[str, Any]) -> Path:
        """Return a squashfs file in which all belongs to who builds: overlays over files of others fail."""
        layout = work / "layout"
        write_layout(layout, layers, image_config(config, layers, architecture=this_architecture(), epoch=0), "base")
        kept = self._workshop.keep(layout, "", self._cluster, self._say)
        shutil.rmtree(layout)
        return Path(kept.path)
