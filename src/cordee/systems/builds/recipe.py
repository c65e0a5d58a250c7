"""A recipe: the table `[build]` of an EDF, from which an image is made."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from cordee.core.documents.faults import ValuePlace, fault_error, validated
from cordee.core.documents.fields import Document, wrong
from cordee.core.ports.images import GivenRecipe

# Of an image that was built: the digest of its recipe.
LABEL = "io.cordee.recipe"
NOT_KEPT = ("/dev", "/proc", "/run", "/sys", "/tmp")
_APT_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*(?<!-)(:[a-z0-9-]+)?([=/][A-Za-z0-9][A-Za-z0-9.+:~-]*)?")
_COPY_FORMS = '"SOURCE:TARGET" with a TARGET that begins with /, or a SOURCE below the EDF\'s folder'


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise wrong("is not a list of texts", 'a list of texts in quotes, such as ["..."]')
    if any(not each.strip() or "\0" in each or "\n" in each for each in value):
        raise wrong("holds an empty text, or one of several lines", "one package, path or command each")
    return tuple(value)


def _packages(value: Any) -> tuple[str, ...]:
    for each in _texts(value):
        if each.lstrip().startswith("-") or any(letter.isspace() for letter in each.strip()):
            raise wrong(f"{each!r} is not a package", "NAME or NAME=VERSION")
    return tuple(dict.fromkeys(each.strip() for each in value))


def _apt_packages(value: Any) -> tuple[str, ...]:
    for each in _packages(value):
        if not _APT_PACKAGE.fullmatch(each):  # apt takes patterns, and names of what it is to remove
            raise wrong(f"{each!r} is not a package", "NAME or NAME=VERSION")
    return _packages(value)


def _requirements(value: Any) -> tuple[str, ...]:
    for each in _texts(value):
        if each.lstrip().startswith(("-", ".", "/")) or " @ " in each or "://" in each:
            raise wrong(
                f"{each!r} is not a requirement with a version",
                'NAME==VERSION and the like; a wheel of your own by its name, its folder in indexes = ["./FOLDER"]',
            )
    return tuple(value)


def _table(value: Any) -> Any:
    return {"packages": value} if isinstance(value, list) else value


def _channels(value: Any) -> tuple[str, ...]:
    for each in _texts(value):
        if "://" in each and ("@" in each or "/t/" in each):
            raise wrong("has a login in it, which would be in the lock", "a URL without one, and `rattler auth login`")
    return tuple(value)


def _indexes(value: Any) -> tuple[str, ...]:
    for each in _texts(value):
        if not each.startswith(("https://", "http://", "./", "../")):
            raise wrong(f"{each!r} is neither a URL nor a folder", "https://HOST/PATH, or ./FOLDER with wheels")
        if "@" in each.partition("://")[2]:
            raise wrong("has a login in it", "a URL without one, and the login in ~/.netrc")
    return tuple(value)


def _folder(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise wrong(f"{value!r} is no folder of the image", "an absolute path such as /opt/conda")
    return value


def _prefix(value: Any) -> str:
    names = _folder(value)[1:].split("/")
    if ":" in value or any(each in ("", ".", "..") for each in names) or f"/{names[0]}" in NOT_KEPT:
        raise wrong(f"{value!r} is no folder that an image keeps", f"one outside of {', '.join(NOT_KEPT)}, without :")
    return str(value)


def _program(value: Any) -> str:
    if not isinstance(value, str) or not value or value.startswith("-") or "\0" in value:
        raise wrong(f"{value!r} is no program", "a name such as python3, or a path in the image")
    return value


def _variables(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise wrong("is not a table of texts", 'lines such as NAME = "value"')
    if any(not key or "=" in key or "\0" in key + text for key, text in value.items()):
        raise wrong("has a variable without a name, or with = or a NUL in it", "names of variables, and texts")
    return dict(value)


Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]


class CondaPart(Document):
    """`conda`, as a table: packages of conda channels."""

    packages: Annotated[tuple[str, ...], BeforeValidator(_packages)] = ()
    """Packages as conda takes them: NAME, NAME=VERSION, NAME>=VERSION."""
    channels: Annotated[tuple[str, ...], BeforeValidator(_channels)] = ("conda-forge",)
    """Where they come from, the first before the next: names, URLs, or folders from the EDF's folder on (./NAME)."""
    prefix: Annotated[str, BeforeValidator(_prefix)] = "/opt/conda"
    """Where they lie in the image."""


class PipPart(Document):
    """`pip`, as a table: packages of a Python index."""

    packages: Annotated[tuple[str, ...], BeforeValidator(_requirements)] = ()
    """Requirements as pip takes them, each with or without a version."""
    requirements: str = ""
    """A file of requirements, from the EDF's folder on."""
    constraints: str = ""
    """A file of constraints, from the EDF's folder on."""
    indexes: Annotated[tuple[str, ...], BeforeValidator(_indexes)] = ()
    """Indexes beside the machine's: URLs, or folders with wheels, from the EDF's folder on (./NAME)."""
    resolver: Literal["pip", "uv"] = "pip"
    """What chooses versions when the recipe is locked."""
    python: Annotated[str, BeforeValidator(_program)] = "python3"
    """The interpreter in the image that packages are installed for."""


class Recipe(Document):
    """`[build]`: the parts of an image, in the order in which they are put into it."""

    from_: str = Field(default="", alias="from")
    """The image that it begins with: a path or a reference, as `image` takes them; `scratch`: nothing."""
    containerfile: str = ""
    """A Containerfile instead of all other parts, from the EDF's folder on; podman or buildah does what it says."""
    apt: Annotated[tuple[str, ...], BeforeValidator(_apt_packages)] = ()
    """Packages of Debian or Ubuntu, from the sources that the base image names."""
    conda: Annotated[CondaPart, BeforeValidator(_table)] = CondaPart()
    """Packages of conda: a list, or a table with channels and where they lie."""
    pip: Annotated[PipPart, BeforeValidator(_table)] = PipPart()
    """Packages of a Python index: a list, or a table with files and a resolver."""
    copy_: Texts = Field(default=(), alias="copy")
    """Files and folders, as SOURCE:TARGET; sources from the EDF's folder on."""
    commands: Texts = ()
    """Lines that /bin/sh runs, each a layer of its own."""
    network: bool = False
    """Whether commands may reach the network; what they fetch is in no lock."""
    env: Annotated[dict[str, str], BeforeValidator(_variables)] = Field(default_factory=dict)
    """Variables of the image, which hold while it is made, too."""
    workdir: Annotated[str, BeforeValidator(_folder)] = ""
    """Where commands of the image begin."""
    entrypoint: Texts = ()
    """What commands are handed to where the EDF says `entrypoint = true`."""
    command: Texts = ()
    """What is run where no command is given."""

    @model_validator(mode="after")
    def _one_way(self) -> Recipe:
        own = [self.from_, self.apt, self.conda != CondaPart(), self.pip != PipPart(), self.copy_, self.commands]
        if self.containerfile and any(own):
            raise wrong("has a containerfile and other parts", "a containerfile, or from and the parts over it")
        if not self.containerfile and not self.from_:
            raise wrong("does not say what the image begins with", 'from = "IMAGE", or containerfile = "FILE"')
        return self


class CopiedPath(NamedTuple):
    """One entry of `copy`.

    Attributes:
        without: files that the build itself writes, which are not part of a folder that is copied.
    """

    source: Path
    target: str
    given: str
    without: frozenset[Path]


class LoadedRecipe(NamedTuple):
    """A recipe and where it stands.

    Attributes:
        recipe: the table.
        given: the EDF's words.
        folder: of the EDF, from which relative paths go on.
    """

    recipe: Recipe
    given: GivenRecipe
    folder: Path

    @property
    def lock_path(self) -> Path:
        """Where the lock is kept: beside the EDF."""
        return self.given.path.with_suffix(".lock.json")

    @property
    def bill_path(self) -> Path:
        """Where the bill of materials is kept: beside the EDF."""
        return self.given.path.with_suffix(".cdx.json")

    @property
    def digest(self) -> str:
        """What tells this recipe from others: its words, and those of files that say what is in the image."""
        words = self.recipe.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        named = (self.recipe.pip.requirements, self.recipe.pip.constraints, self.recipe.containerfile)
        paths = [self.folder / os.path.expanduser(name) for name in named if name]
        texts = [path.read_text(errors="replace") if path.is_file() else "" for path in paths]
        return digest_of([words, *texts] if texts else words)

    def file(self, name: str, key: tuple[str | int, ...]) -> Path:
        """Return a file that the recipe names.

        Raises:
            DocumentError: it is not there.
        """
        path = self.folder / os.path.expanduser(name)
        if not os.path.lexists(path):
            raise self.fault(f"{'.'.join(map(str, key))} names what is not there", key, given=str(path))
        return path

    def copies(self) -> list[CopiedPath]:
        """Return what is copied.

        Raises:
            DocumentError: a source is not there, or a target is none.
        """
        found = []
        written = self.written()
        for index, text in enumerate(self.recipe.copy_):
            source, _, target = text.partition(":")
            if not source or not target.startswith("/") or ".." in target.split("/"):
                what = "target" if source else "source"
                raise self.fault(f"copy.{index} has no {what}", ("copy", index), given=text, allowed=_COPY_FORMS)
            if f"/{target.lstrip('/').partition('/')[0]}" in NOT_KEPT:
                allowed = f"a TARGET outside of {', '.join(NOT_KEPT)}"
                raise self.fault("copy goes where an image keeps nothing", ("copy", index), given=text, allowed=allowed)
            path = self.file(source, ("copy", index))
            found.append(CopiedPath(path, target + (path.name if target.endswith("/") else ""), text, written))
        return found

    def written(self) -> frozenset[Path]:
        """Return what a build writes: the lock, the bill of materials, and the image that is a file."""
        image = Path(self.given.image)
        paths = [self.lock_path, self.bill_path, *([image] if image.is_absolute() else [])]
        return frozenset(path.parent.resolve() / path.name for path in paths)

    def fault(self, text: str, keys: tuple[str | int, ...], **details: Any) -> Exception:
        """Return the error of one key of the recipe."""
        return fault_error(
            f"build.{text}", "bad-recipe", file=str(self.given.path), line=self.given.line(keys), **details
        )


def load_recipe(given: GivenRecipe) -> LoadedRecipe:
    """Return the recipe of an EDF.

    Raises:
        DocumentError: it is wrong; every fault is a finding.
    """

    def place(keys: tuple[str | int, ...]) -> ValuePlace:
        return ValuePlace(str(given.path), given.line(keys), ("build",))

    loaded = LoadedRecipe(validated(Recipe, given.table, place), given, given.path.parent)
    begins = os.path.expanduser(loaded.recipe.from_)
    paths = {os.path.realpath(loaded.folder / each) for each in (begins, given.image)}
    if begins == given.image or ("/" in begins and given.image.startswith("/") and len(paths) == 1):
        raise loaded.fault(
            "from is the image that is made", ("from",), given=begins, allowed="another name or path than that of image"
        )
    return loaded


def digest_of(document: Any) -> str:
    """Return the digest of a JSON document, in one form of it."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
