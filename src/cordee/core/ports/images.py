"""The port `images`: environments and their images, for whoever makes images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cordee.core.findings import Finding

PORT = "images"
# Who builds images offers `StaleImage` by this name.
STALE = "stale-image"
# And `PushedImage` by this one.
PUSHED = "pushed-image"


class GivenRecipe(NamedTuple):
    """What an EDF says of how its image is made.

    Attributes:
        name: of the environment.
        path: of the EDF that has the table.
        table: `[build]` as it stands there.
        image: what the result is called; empty: the EDF does not say.
        line: returns the line of a path of keys in the EDF.
    """

    name: str
    path: Path
    table: Mapping[str, Any]
    image: str
    line: Callable[[tuple[str | int, ...]], int | None]


class ImageAtHand(NamedTuple):
    """An image on this machine.

    Attributes:
        kind: `folder` or `squashfs`.
        path: of its root.
        digest: what it is known by; empty: it is a bare folder or file.
        env, workdir, entrypoint, command: what it says of itself.
    """

    kind: str
    path: str
    digest: str
    env: Mapping[str, str]
    workdir: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]


class StaleImage(Protocol):
    """Returns what has changed since the image of a recipe was built; `digest` is that of the image that would be run, or empty."""

    def __call__(self, given: GivenRecipe, digest: str) -> list[Finding]: ...


class PushedImage(Protocol):
    """Returns what a registry calls the image of an EDF, REGISTRY/NAME@DIGEST, as `cordee env push` has left it there.

    Raises:
        CordeeError: it was not pushed since it was built, its recipe has changed, or it needs more than its image.
    """

    def __call__(self, file: str, cluster: str) -> str: ...


class ImageWorkshop(Protocol):
    """What environments do for whoever makes images. `cluster` says whose profile counts; `say` is told what is done."""

    def recipe(self, name: str, cluster: str) -> GivenRecipe:
        """Return the recipe of an EDF, found as `--environment` finds it.

        Raises:
            DocumentError: it is not there, is wrong, or has none.
        """
        ...

    def plain(self, name: str, cluster: str, image: str | None) -> tuple[str, list[str]]:
        """Return an EDF without tables of Cordée's own, with another image if one is given, and the tables left out.

        Raises:
            DocumentError: it is not there, or wrong.
        """
        ...

    def at_hand(self, image: str, cluster: str, fetch: bool, say: Callable[[str], None]) -> ImageAtHand:
        """Return an image on this machine, fetched if it is allowed.

        Raises:
            CordeeError: it is not here.
        """
        ...

    def is_path(self, image: str) -> str:
        """Return the path that an image is; empty: it is a name."""
        ...

    def step_argv(self, order: Path) -> list[str]:
        """Return the command line that does a step of a build, as its order says."""
        ...

    def keep(
        self,
        layout: Path,
        name: str,
        cluster: str,
        say: Callable[[str], None],
        stem: tuple[int, Path] | None = None,
    ) -> ImageAtHand:
        """Take an OCI layout into the person's store, and pin a name to it; empty: none.

        Args:
            stem: how many of its layers many images begin with, and a folder in which what is made of these is kept.

        Raises:
            CordeeError: the store is full, or cannot be written.
        """
        ...

    def copy_to(self, image: ImageAtHand, name: str, folder: Path, quota: int | None) -> Path:
        """Copy an image of the person's store into the store at `folder`, under a name; return its squashfs there.

        Raises:
            CordeeError: the store is full, or what it may hold would be exceeded.
        """
        ...

    def push(self, layout: Path, reference: str, compress: bool, work: Path, say: Callable[[str], None]) -> str:
        """Copy the only image of an OCI layout to a registry; return what it is called there, REGISTRY/NAME@DIGEST.

        Args:
            compress: layers may be compressed, which makes another digest.
            work: a folder for what is only needed meanwhile, logins too.

        Raises:
            CordeeError: the reference is none, or the registry does not take it.
        """
        ...
