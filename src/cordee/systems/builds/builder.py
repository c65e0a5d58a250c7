"""A recipe made into an image: parts locked and put on each other, then one OCI layout and one squashfs file of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cordee.core.documents.files import read_text
from cordee.core.findings import Finding
from cordee.core.ports.images import ImageWorkshop
from cordee.machine.images.errors import ImageError
from cordee.machine.images.oci import this_architecture
from cordee.systems.builds.base import BaseKeeper
from cordee.systems.builds.bench import BuildBench, BuildStep
from cordee.systems.builds.cache import BuildCache, CachedLayer
from cordee.systems.builds.containerfile import containerfile_layout, locked_bases
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.filed import filed_layout
from cordee.systems.builds.layout import LayerBlob, check_layout, image_config, write_layout
from cordee.systems.builds.lock import MAX_TIME, BuildLock, read_lock, write_lock
from cordee.systems.builds.parts._base import RecipePart
from cordee.systems.builds.parts.apt import AptPart
from cordee.systems.builds.parts.conda import CondaPackages
from cordee.systems.builds.parts.files import CopiedFiles, ShellCommands
from cordee.systems.builds.parts.pip import PipPackages
from cordee.systems.builds.recipe import LABEL, LoadedRecipe, digest_of

# In the order in which they are put into an image: what changes seldom comes first.
PARTS: tuple[type[RecipePart], ...] = (AptPart, CondaPackages, PipPackages, CopiedFiles, ShellCommands)
_DAY_S = 86_400
_MOST_NAMES = 12
# What is over the packages is compressed by one core, into a copy of what is made of them.
_LEAST_STEM_BYTES, _MOST_GROWTH_BYTES = 1 << 20, 256 << 20


class BuildWishes(NamedTuple):
    """How an image is to be made.

    Attributes:
        cluster: whose profile counts.
        offline: nothing is fetched.
        frozen: the lock must be up to date, and the image the one that was made from it first.
        anew: versions are chosen again.
        fresh: every layer is made again, and compared with the one before.
    """

    cluster: str
    offline: bool = False
    frozen: bool = False
    anew: bool = False
    fresh: bool = False


class BuiltImage(NamedTuple):
    """An image that was made.

    Attributes:
        digest: of its manifest.
        name: what it is called; a path, or a name in the store.
        path: its squashfs file.
        layout: its OCI layout.
        layers: over the base, the lowest first.
        lock, bill: where the lock is, and where the bill of materials is to be.
        findings: steps that did not repeat themselves, and what a layer cannot hold.
        seconds: all of it.
    """

    digest: str
    name: str
    path: Path
    layout: Path
    layers: tuple[CachedLayer, ...]
    lock: Path
    bill: Path
    findings: tuple[Finding, ...]
    seconds: float


class RecipeBuilder:
    """Makes the image of one recipe.

    Args:
        loaded: the recipe.
        workshop: who knows images and runs steps.
        cache: where layers and packages are kept.
        wishes: how.
        say: told what is done, line by line.
    """

    def __init__(
        self,
        loaded: LoadedRecipe,
        workshop: ImageWorkshop,
        cache: BuildCache,
        wishes: BuildWishes,
        say: Callable[[str], None],
    ) -> None:
        self._loaded, self._workshop, self._cache = loaded, workshop, cache
        self._wishes, self._say = wishes, say
        self._lock = read_lock(loaded.lock_path) or BuildLock()
        self._findings: list[Finding] = []

    def lock(self) -> BuildLock:
        """Bring the lock up to date and return it; layers are made only where a part is resolved in them.

        Raises:
            BuildError: a part cannot be resolved.
        """
        if self._loaded.recipe.containerfile:
            self._lock_bases()
            return self._lock
        bench = self._bench()
        wanted = [part for kind in PARTS if (part := kind(bench)).wanted()]
        resolved = [part for part in wanted if part.inputs() is not None]
        self._forget(wanted)
        for part in resolved:
            part.lock(anew=self._wishes.anew, frozen=self._wishes.frozen)
            self._write()
            if part is not resolved[-1]:
                self._put(bench, part)
            else:
                part.ensure()
        self._write()
        return self._lock

    def build(self) -> BuiltImage:
        """Make the image.

        Raises:
            BuildError: a step failed, something locked is not to be had, there is no room, or the image is another one than
                was locked.
        """
        began = time.monotonic()
        if self._loaded.recipe.containerfile:
            return self._by_containerfile(began)
        bench = self._bench()
        wanted = [part for kind in PARTS if (part := kind(bench)).wanted()]
        self._forget(wanted)
        for part in wanted:
            part.lock(anew=self._wishes.anew, frozen=self._wishes.frozen)
            self._write()
            self._put(bench, part)
        if not self._loaded.recipe.copy_:
            self._lock.copies = []
        self._compare(bench)
        blobs = [*bench.base.layers, *(self._blob(layer) for layer in bench.layers)]
        layout, digest = self._layout(blobs, bench)
        return self._finish(layout, digest, tuple(bench.layers), began, self._stem(bench))

    def _stem(self, bench: BuildBench) -> tuple[int, Path] | None:
        """Return the layers of packages, where there is more than them and packing it all anew would take long."""
        below = [layer for layer, step in zip(bench.layers, bench.steps, strict=True) if step.packages]
        over = sum(layer.bytes for layer in bench.layers[len(below) :])
        under = sum(layer.bytes for layer in bench.base.layers) + sum(layer.bytes for layer in below)
        if under < _LEAST_STEM_BYTES or over > _MOST_GROWTH_BYTES or len(below) == len(bench.layers):
            return None
        return len(bench.base.layers) + len(below), self._cache.stems_folder

    def _bench(self) -> BuildBench:
        recipe, lock, wishes = self._loaded.recipe, self._lock, self._wishes
        path = self._workshop.is_path(recipe.from_)
        image = recipe.from_
        if path and not recipe.from_.startswith("/"):
            scheme = (
                recipe.from_.partition(":")[0]
                if recipe.from_.startswith(("oci:", "oci-archive:", "docker-archive:"))
                else ""
            )
            plain = recipe.from_.removeprefix(f"{scheme}:") if scheme else recipe.from_
            whole = os.path.normpath(self._loaded.folder / os.path.expanduser(plain))
            image = f"{scheme}:{whole}" if scheme else whole
        known = lock.base.get("digest", "") if lock.base.get("image") == recipe.from_ and not wishes.anew else ""
        if wishes.frozen and not known:
            raise BuildError("the base image is not locked", given=recipe.from_, next="cordee env lock")
        base = BaseKeeper(self._workshop, self._cache, wishes.cluster, self._say).get(image, known, wishes.offline)
        if base.digest != lock.base.get("digest"):
            lock.layers = []
        lock.base = {"image": recipe.from_, "digest": base.digest, "architecture": this_architecture()}
        if not lock.epoch or wishes.anew:
            given = os.environ.get("SOURCE_DATE_EPOCH", "")
            named = int(given) if given.isdecimal() else -1
            lock.epoch = named if 0 <= named <= MAX_TIME else int(time.time()) // _DAY_S * _DAY_S
            lock.layers = []
        return BuildBench(
            self._loaded,
            lock,
            base,
            self._cache,
            self._workshop,
            offline=wishes.offline,
            fresh=wishes.fresh,
            say=self._say,
        )

    def _forget(self, wanted: list[RecipePart]) -> None:
        """Take out of the lock what belongs to parts that the recipe has no more."""
        for kind in PARTS:
            if kind.name in self._lock.parts and not any(part.name == kind.name for part in wanted):
                del self._lock.parts[kind.name]
                self._lock.replace(kind.kinds, [])

    def _put(self, bench: BuildBench, part: RecipePart) -> None:
        for step in part.steps():
            layer, before = bench.add(step)
            if before is not None and before.digest != layer.digest:
                self._differs(step, "made again", self._names(before, layer))
            if layer.left_out:
                names = ", ".join(layer.left_out[:_MOST_NAMES])
                self._tell(f"{layer.step}: an image cannot hold {names}", "build-left-out", None)
            if layer.fresh and not layer.owners_kept:
                self._tell(
                    f"{layer.step}: this file system keeps no extended attributes, so that all files belong to root",
                    "build-owners-lost",
                    "name a folder on a local disk with CORDEE_BUILD_CACHE",
                )

    def _compare(self, bench: BuildBench) -> None:
        """Compare the layers with those that were made from the lock first, and note them where there were none."""
        now = [{"step": layer.step, "digest": layer.digest} for layer in bench.layers]
        before = self._lock.layers
        if [each["step"] for each in before] != [each["step"] for each in now]:
            if before and self._wishes.frozen:
                raise BuildError("the recipe has other steps than its lock", next="build once without --locked")
            before = []
        changed = [index for index, (old, new) in enumerate(zip(before, now, strict=False)) if old != new]
        if changed:
            step = bench.steps[changed[0]]
            self._differs(step, "made when the recipe was locked", [])
            if self._wishes.frozen:
                raise BuildError(
                    f"{step.label}: it made other files than when the recipe was locked",
                    given=now[changed[0]]["digest"],
                    allowed=before[changed[0]]["digest"],
                    next="cordee env build --check names the files; without --locked the image is taken as it is now",
                )
        self._lock.layers = now
        self._write()

    def _differs(self, step: BuildStep, when: str, names: list[str]) -> None:
        shown = f": {', '.join(names[:_MOST_NAMES])}" if names else ""
        why = "" if step.repeats else "; what it fetches, and times and random numbers that it writes, are its own"
        self._tell(
            f"{step.label}: its files are not those {when}{shown}",
            "build-not-repeatable",
            f"have it write the same each time (SOURCE_DATE_EPOCH is set){why}",
        )

    def _names(self, before: CachedLayer, now: CachedLayer) -> list[str]:
        one, other = (_members(self._cache.archive(layer.digest)) for layer in (before, now))
        return sorted(f"/{name}" for name in one.keys() | other.keys() if one.get(name) != other.get(name))

    def _tell(self, text: str, rule: str, hint: str | None) -> None:
        self._findings.append(Finding(text, "warn", rule, file=str(self._loaded.given.path), next=hint))

    def _blob(self, layer: CachedLayer) -> LayerBlob:
        return LayerBlob(self._cache.archive(layer.digest), layer.digest, layer.bytes, layer.digest, layer.step)

    def _layout(self, blobs: list[LayerBlob], bench: BuildBench) -> tuple[Path, str]:
        recipe, base = self._loaded.recipe, bench.base
        config = {
            "Env": bench.image_variables(),
            "WorkingDir": recipe.workdir or base.config["WorkingDir"],
            "Entrypoint": list(recipe.entrypoint or base.config["Entrypoint"]),
            "Cmd": list(recipe.command or base.config["Cmd"]),
            "Labels": {LABEL: f"sha256:{self._loaded.digest}"},
        }
        document = image_config(config, blobs, architecture=this_architecture(), epoch=self._lock.epoch)
        with self._cache.temporary() as work, self._cache.faults():
            digest = write_layout(work / "layout", blobs, document, self._loaded.given.name)
            return self._cache.keep_image(digest, work / "layout"), digest

    def _lock_bases(self) -> Path:
        """Have the base images of the Containerfile locked; return where it is."""
        path, wishes = self._loaded.file(self._loaded.recipe.containerfile, ("containerfile",)), self._wishes
        now = digest_of(read_text(path, "a Containerfile"))
        if self._lock.parts != {"containerfile": now} or wishes.anew:
            if wishes.frozen:
                raise BuildError("the lock is older than the Containerfile", given="--locked", next="cordee env lock")
            self._lock.packages = locked_bases(read_text(path, "a Containerfile"), self._loaded.folder)
            self._lock.parts, self._lock.base, self._lock.layers = {"containerfile": now}, {}, []
            self._write()
        return path

    def _by_containerfile(self, began: float) -> BuiltImage:
        path = self._lock_bases()
        epoch = self._lock.epoch or int(time.time()) // _DAY_S * _DAY_S
        with self._cache.temporary() as work:
            layout, digest = containerfile_layout(
                self._loaded, path, work, self._lock.of("image"), epoch, self._wishes.offline, self._say
            )
            with self._cache.faults():
                kept = self._cache.keep_image(digest, layout)
        now = [{"step": self._loaded.recipe.containerfile, "digest": digest}]
        if self._lock.layers and self._lock.layers != now:
            text = f"{path.name}: the image is not the one made when it was locked"
            if self._wishes.frozen:
                raise BuildError(text, given=digest, allowed=self._lock.layers[0]["digest"])
            self._tell(text, "build-not-repeatable", "name images by digest and packages by version in it")
        self._lock.epoch, self._lock.layers = epoch, now
        self._write()
        return self._finish(kept, digest, (), began)

    def _finish(
        self,
        layout: Path,
        digest: str,
        layers: tuple[CachedLayer, ...],
        began: float,
        stem: tuple[int, Path] | None = None,
    ) -> BuiltImage:
        """Make the squashfs file of a layout, under the name that the EDF has for it."""
        image = self._loaded.given.image
        path = self._workshop.is_path(image)
        try:
            if path:
                with self._cache.temporary() as work, self._cache.faults():
                    filed = filed_layout(layout, work, self._lock.epoch)
                    kept = self._workshop.keep(filed, "", self._wishes.cluster, self._say, stem)
                    at = self._written(Path(kept.path), Path(path))
            else:
                at = Path(self._workshop.keep(layout, image, self._wishes.cluster, self._say, stem).path)
        except ImageError:
            check_layout(layout)
            raise
        lock = self._lock
        pushed = {
            key: lock.image[key] for key in ("pushed",) if lock.image.get("digest") == digest and key in lock.image
        }
        lock.image = {**pushed, "digest": digest, "recipe": self._loaded.digest, "packages": lock.packages_digest()}
        self._write()
        seconds = round(time.monotonic() - began, 3)
        beside = (self._loaded.lock_path, self._loaded.bill_path)
        return BuiltImage(digest, image, at, layout, layers, *beside, tuple(self._findings), seconds)

    def _written(self, kept: Path, path: Path) -> Path:
        """Write the file that an EDF names as its image, whole or not at all."""
        if path.is_dir() or path.suffix in (".tar", ".oci"):
            raise BuildError(
                "the image that is made is a squashfs file", given=str(path), allowed='image = "NAME", or "./FILE.sqsh"'
            )
        made = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            shutil.copyfile(kept, made)
            made.replace(path)
        except OSError as error:
            raise BuildError(
                f"the image cannot be written: {error.strerror or error}",
                given=str(path),
                next="make room in that folder, or let image name a file in another one",
            ) from None
        finally:
            with contextlib.suppress(OSError):
                made.unlink(missing_ok=True)
        return path

    def _write(self) -> None:
        if not self._wishes.frozen:
            write_lock(self._loaded.lock_path, self._lock)


def _members(archive: Path) -> dict[str, tuple[object, ...]]:
    """Return what tells each member of an archive from others."""
    found: dict[str, tuple[object, ...]] = {}
    with tarfile.open(archive, "r:") as tar:
        for each in tar:
            content = tar.extractfile(each) if each.isfile() else None
            digest = hashlib.file_digest(content, "sha256").hexdigest() if content else each.linkname  # type: ignore[arg-type]
            found[each.name] = (each.type, each.mode, each.uid, each.gid, int(each.mtime), digest)
    return found
