"""From the name of an EDF to one environment in which nothing is inherited, relative or to be expanded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.core.documents.faults import document_error
from cordee.core.documents.toml_lines import Keys
from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.systems.environments.edf.build import ConfigOf, EdfExpansion
from cordee.systems.environments.edf.fields import DEFAULTS, MERGED, GivenValue, fault
from cordee.systems.environments.edf.inherit import EdfReader
from cordee.systems.environments.edf.merge import merge
from cordee.systems.environments.edf.origins import DEFAULT, EdfOrigin, chain
from cordee.systems.environments.edf.render import edf_text
from cordee.systems.environments.edf.search import find_edf, no_such_edf, search_folders
from cordee.systems.environments.edf.stack import StackTables
from cordee.systems.environments.node.document import Environment

if TYPE_CHECKING:
    from cordee.systems.environments.edf.views import LaidView
    from cordee.systems.environments.images.store.image_store import ImageStore

_NAMED = 'image = "NAME", which is kept in your store, or image = "./FILE.sqsh"'


@dataclass(frozen=True)
class Resolved:
    """An EDF, resolved.

    Attributes:
        environment: the canonical document, without `root` and `config`.
        files: every EDF that was read, the one that was asked for last.
        additions: the tables `[build]` as it is, and `[startup]` and `[stack]` as one file would say what all of them do.
        unknown: keys that a lenient reading kept.
        findings: what is worth a warning.
        given: for every path of keys of the environment, what files say of it, the one that holds first.
        views: of `[stack]`, in their order; what they add is in the environment.
    """

    environment: Environment
    files: tuple[Path, ...]
    additions: Mapping[str, Any]
    unknown: Mapping[str, Any]
    findings: tuple[Finding, ...]
    given: Mapping[Keys, list[GivenValue]]
    views: tuple[LaidView, ...] = ()

    def text(self) -> str:
        """Return the text of an EDF that resolves to this environment, wherever it is resolved."""
        mounts = self.environment.mounts[: len(self.environment.mounts) - len(self.views)]
        return edf_text(replace(self.environment, mounts=mounts), self.additions)

    def located(
        self, store: ImageStore, *, pull: bool = False, say: Callable[[str], None] = lambda text: None
    ) -> Environment:
        """Return the environment with its root, as `locate` does; an image that has a recipe is built and not fetched.

        Raises:
            ImageError, StoreError: the image is not there, or the store cannot be used.
        """
        from cordee.systems.environments.images.locate import locate

        try:
            return locate(self.environment, store, pull=pull and not self.additions.get("build"), say=say)
        except CordeeError as error:
            raise self.unbuilt(error) from None

    def unbuilt(self, error: CordeeError) -> CordeeError:
        """Return the error of an image that is not here, with what to do where a recipe can make it."""
        if self.additions.get("build"):
            error.next = f"cordee env build {self.files[-1]}"
        return error

    @cached_property
    def origins(self) -> dict[Keys, EdfOrigin]:
        """Where every value came from, by its path of keys: `("image",)`, `("mounts", 0)`, `("env", "PATH")`,
        `("annotations", "com.hooks.cxi.enabled")`. Values that no file gives are of the kind `default`.
        """
        defaults: dict[Keys, EdfOrigin] = {(key,): EdfOrigin(DEFAULT, value) for key, value in DEFAULTS.items()}
        found: dict[Keys, EdfOrigin] = dict(defaults)
        for keys, given in self.given.items():
            origin = chain(given, defaults.get(keys))
            if origin is not None:
                found[keys] = origin
        return found


def resolve(
    name_or_path: str,
    *,
    cwd: Path,
    variables: Mapping[str, str],
    search_path: Sequence[Path] | None = None,
    lenient: bool = False,
    config_of: ConfigOf | None = None,
) -> Resolved:
    """Return the environment that an EDF describes, and where every value of it came from.

    Args:
        name_or_path: as `--environment` takes it: a path when it begins with `.` or `/` or ends with `.toml`, else a
            name on the search path.
        cwd: the caller's working directory, where every relative path begins, those in EDFs too.
        variables: of the host, for expansion.
        search_path: folders in which names are looked up (None: EDF_PATH, else `~/.edf`).
        lenient: unknown keys and mount flags are kept, with a warning.
        config_of: returns what an image says of itself, None when it is not known; its variables go before the host's
            in what holds inside the container, `env` and `workdir`.

    Raises:
        DocumentError: it is not there, or wrong; all faults of all its files are in `findings`.
    """
    folders = search_folders(variables) if search_path is None else search_path
    path = find_edf(name_or_path, cwd, folders)
    if path is None:
        raise document_error([no_such_edf(name_or_path, cwd, folders, None, None)])
    reader = EdfReader(cwd, variables, folders, lenient)
    lineage = reader.read(path)
    merged = merge(lineage)
    made = EdfExpansion(merged, cwd, variables, lenient, reader.findings)
    environment = made.environment(path.stem, config_of)
    stack = StackTables(merged.additions, cwd, variables)
    made.findings += stack.findings
    if "build" in merged.additions and not environment.image and not made.wrong:
        text = "makes an image that the environment does not name: commands would see the host's own root"
        details = {"allowed": _NAMED, "next": 'add image = "NAME" before the first table'}
        made.findings.append(fault(merged.additions["build"][0].edf, ("build",), text, "no-image-name", **details))
    views = _laid(stack, made)
    environment = replace(
        environment,
        mounts=(*environment.mounts, *(view.mount for view in views)),
        patches=tuple(patch for view in views for patch in view.patches),
        **stack.settings(),
    )
    if made.wrong:
        raise document_error([finding for finding in made.findings if finding.severity == "error"])
    files = tuple(edf.path for edf in lineage.weakest_first)
    additions = {name: told[0].value for name, told in merged.additions.items() if name not in MERGED}
    given: dict[Keys, list[GivenValue]] = {**made.given, **stack.given}
    given.update({(name,): told for name, told in merged.additions.items()})
    first = len(environment.mounts) - len(views)
    given.update({("mounts", first + at): [told] for at, (_, told) in enumerate(stack.views)})
    tables = {**additions, **stack.tables()}
    return Resolved(environment, files, tables, merged.unknown, tuple(made.findings), given, tuple(views))


def _laid(stack: StackTables, made: EdfExpansion) -> list[LaidView]:
    """Return the views of an EDF; what is wrong with one is among the findings."""
    found: list[LaidView] = []
    if stack.views:
        # Deferred: it looks into squashfs files, and stands in front of every command.
        from cordee.systems.environments.edf.views import ViewError, lay, refuse_covered

        for asked, given in stack.views:
            try:
                view = lay(asked)
                refuse_covered(view, found)
                found.append(view)
            except ViewError as error:
                details: dict[str, Any] = {"given": error.given, "allowed": error.allowed, "next": error.next}
                made.findings.append(fault(given.edf, given.keys, error.text, "bad-view", **details))
    return found
