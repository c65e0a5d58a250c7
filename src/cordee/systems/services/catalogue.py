"""The catalogue: blueprints of Cordée, of a site and of a person, each laid over the one before."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cordee.core.documents.config_paths import config_folder
from cordee.core.errors import DocumentError, UsageError
from cordee.core.findings import Finding
from cordee.core.words import did_you_mean
from cordee.systems.services.blueprint import LoadedBlueprint, load_blueprint
from cordee.systems.services.instance import ServiceFolder

SITE_FOLDER = Path("/etc/cordee/services")
_ENTRIES = Path(__file__).parent / "entries"


def catalogue_folders(environ: Mapping[str, str] = os.environ) -> list[tuple[str, Path]]:
    """Return (whose, folder) of each catalogue, the weakest first; CORDEE_CATALOGUES replaces the site's and the person's."""
    given = environ.get("CORDEE_CATALOGUES")
    own = (
        [("site", Path(one)) for one in given.split(os.pathsep) if one]
        if given
        else [("site", SITE_FOLDER), ("user", config_folder(environ) / "services")]
    )
    return [("built-in", _ENTRIES), *own]


def catalogue() -> tuple[dict[str, LoadedBlueprint], list[Finding]]:
    """Return the blueprints by name, and the faults of those that cannot be used."""
    found: dict[str, LoadedBlueprint] = {}
    faults: list[Finding] = []
    for origin, folder in catalogue_folders():
        for path in sorted(folder.glob("*.toml")) if folder.is_dir() else ():
            try:
                loaded = load_blueprint(path, origin)
            except DocumentError as error:
                faults += error.findings
                continue
            if loaded.blueprint.name != path.stem:
                text = f"the file is not named after its service {loaded.blueprint.name}"
                allowed = f"{loaded.blueprint.name}.toml"
                faults.append(loaded.finding(("name",), text, "catalogue-name", "rename it", allowed=allowed))
                continue
            found[path.stem] = loaded
    return found, faults


def blueprint_again(folder: ServiceFolder) -> LoadedBlueprint:
    """Return the blueprint of a deployed service as its file or catalogue has it now; what was kept of it where that is gone.

    Raises:
        CordeeError: it is wrong, or cannot be read.
    """
    kept = folder.blueprint()
    own = kept.source != kept.path and kept.source.parent not in [place for _, place in catalogue_folders()]
    if own:
        return load_blueprint(kept.source) if kept.source.is_file() else kept
    try:
        return find_blueprint(folder.record()["blueprint"])
    except UsageError:
        return kept


def find_blueprint(given: str) -> LoadedBlueprint:
    """Return a blueprint by the name in the catalogue, or by its file.

    Raises:
        UsageError: there is none.
        DocumentError: it is wrong.
    """
    if given.endswith(".toml") or os.sep in given:
        return load_blueprint(Path(given))
    for origin, folder in reversed(catalogue_folders()):
        path = folder / f"{given}.toml"
        if path.parent == folder and path.is_file():
            return load_blueprint(path, origin)
    known = list(catalogue()[0])
    raise UsageError(
        f"the catalogue has no service {given}",
        given=given,
        allowed=known,
        next=did_you_mean(given, known, "give the file of a blueprint, or draft one: `cordee service new NAME`"),
    )
