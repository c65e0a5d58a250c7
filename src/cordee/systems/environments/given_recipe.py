"""The recipe that an EDF has, for those who make images."""

from __future__ import annotations

from cordee.core.documents.toml_lines import Keys
from cordee.core.ports.images import GivenRecipe
from cordee.systems.environments.edf import Resolved


def given_recipe(found: Resolved) -> GivenRecipe | None:
    """Return the table `[build]` of an EDF and where it stands; None: there is none."""
    given = found.given.get(("build",))
    if not given:
        return None
    edf = given[0].edf

    def line(keys: Keys) -> int | None:
        return edf.line(("build", *keys)) or edf.line(("build",))

    return GivenRecipe(found.environment.name, edf.path, found.additions["build"], found.environment.image, line)
