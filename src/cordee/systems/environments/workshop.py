"""What environments offer makers of images: their recipes, images at hand, steps in the namespace engine, and the store."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cordee.core.documents.faults import fault_error
from cordee.core.errors import UsageError
from cordee.core.ports.images import GivenRecipe, ImageAtHand
from cordee.core.units import format_size
from cordee.machine.image_config import ImageConfig
from cordee.machine.images.errors import StoreError
from cordee.machine.images.oci import open_image
from cordee.systems.environments.edf.render import edf_text
from cordee.systems.environments.given_recipe import given_recipe
from cordee.systems.environments.images.grown import Stem
from cordee.systems.environments.images.image_import import import_image
from cordee.systems.environments.images.locate import locate
from cordee.systems.environments.images.reference import LocalPath, RegistryReference, read_reference
from cordee.systems.environments.images.registry.client import RegistryQuestion, Skopeo
from cordee.systems.environments.images.store.image_store import ImageStore
from cordee.systems.environments.images.store.records import same_as_imported
from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines.namespace.boot import first_words
from cordee.systems.environments.prepare import resolve_here, site_of, store_of


class EnvironmentWorkshop:
    """Fills the port `images`."""

    def recipe(self, name: str, cluster: str) -> GivenRecipe:
        """Return the recipe of an EDF."""
        found = resolve_here(name, site_of(cluster))
        given = given_recipe(found)
        if given is None:
            raise fault_error(
                "the environment has no recipe",
                "no-recipe",
                file=str(found.files[-1]),
                allowed="a table [build] that says what the image is made from",
                next='add [build] with from = "IMAGE", and image = "NAME" for what is made',
            )
        return given

    def plain(self, name: str, cluster: str, image: str | None) -> tuple[str, list[str]]:
        """Return an EDF without tables of Cordée's own."""
        found = resolve_here(name, site_of(cluster))
        environment = found.environment
        if image is not None:
            environment = replace(environment, image=image)
        return edf_text(environment), [key for key, value in found.additions.items() if value and key != "build"]

    def at_hand(self, image: str, cluster: str, fetch: bool, say: Callable[[str], None]) -> ImageAtHand:
        """Return an image on this machine."""
        located = locate(Environment(name="", image=image), store_of(site_of(cluster)), pull=fetch, say=say)
        root, config = located.root, located.config
        if root is None or config is None or root.kind == "host":
            raise UsageError("an image begins with an image", given=image or "(nothing)", next='from = "IMAGE"')
        return _hand(root.kind, root.path, config)

    def is_path(self, image: str) -> str:
        """Return the path that an image is; empty: it is a name."""
        source = read_reference(image)
        return source.path if isinstance(source, LocalPath) else ""

    def step_argv(self, order: Path) -> list[str]:
        """Return the command line of a step."""
        return [*first_words(), "build", str(order)]

    def keep(
        self,
        layout: Path,
        name: str,
        cluster: str,
        say: Callable[[str], None],
        stem: tuple[int, Path] | None = None,
    ) -> ImageAtHand:
        """Take an OCI layout into the person's store."""
        store = store_of(site_of(cluster))
        store.require()
        grown = None if stem is None else Stem(*stem)
        kept = import_image(open_image(layout), store, origin="cordee env build", say=say, stem=grown)
        if name:
            source = read_reference(name)
            assert isinstance(source, RegistryReference)
            store.pin(source.name, kept.digest)
        return _hand("squashfs", str(kept.path), kept.config)

    def copy_to(self, image: ImageAtHand, name: str, folder: Path, quota: int | None) -> Path:
        """Copy an image of the person's store into the store at `folder`, under a name."""
        there = ImageStore(folder, f"have {folder} made writable for you by who keeps it")
        own = ImageStore(Path(image.path).parent.parent.parent).find(image.digest)
        if own is None:
            raise StoreError("the image is not one of your store", given=image.path, next="cordee env build, or pull")
        # Of two at once that each fit alone, the second has to see the first.
        with there.importing(image.digest if quota is None else "what the quota is shared by"):
            kept = there.find(image.digest)
            if kept is None:
                _within(quota, there, own.size_bytes)
                with there.temporary() as temporary, there.faults():
                    made = temporary / "made.squashfs"
                    shutil.copyfile(own.path, made)
                    same_as_imported(own, made)
                    kept = there.keep(made, own.config, origin=own.origin, made_by=own.made_by, contents=own.contents)
            source = read_reference(name)
            there.pin(source.name, kept.digest)
        return kept.path

    def push(self, layout: Path, reference: str, compress: bool, work: Path, say: Callable[[str], None]) -> str:
        """Copy the only image of an OCI layout to a registry; return what it is called there."""
        source = read_reference(reference)
        program = shutil.which("skopeo")
        if not isinstance(source, RegistryReference):
            raise UsageError("this is a path, not a registry", given=reference, allowed="REGISTRY/NAME:TAG")
        if program is None:
            raise UsageError("images are pushed with skopeo, which is not installed", next="install skopeo")
        asked = RegistryQuestion(source, work, say, os.environ, time.sleep)
        return replace(source, digest=Skopeo(program, asked).push(layout, compress)).name


def _hand(kind: str, path: str, config: ImageConfig) -> ImageAtHand:
    told = (config.env, config.workdir or "", config.entrypoint, config.command)
    return ImageAtHand(kind, path, config.digest or "", *told)


def _within(quota: int | None, store: ImageStore, more: int) -> None:
    images = store.images()
    used = sum(image.size_bytes for image in images)
    if quota is None or used + more <= quota:
        return
    largest = max(images, key=lambda image: image.size_bytes, default=None)
    raise StoreError(
        f"the store may hold {format_size(quota)}, has {format_size(used)}, and the image takes {format_size(more)}",
        given=str(store.folder),
        next=f"remove images: cordee env rm --store {store.folder} {largest.digest}"
        if largest
        else "have the quota in the cluster's profile raised",
    )


WORKSHOP = EnvironmentWorkshop()
