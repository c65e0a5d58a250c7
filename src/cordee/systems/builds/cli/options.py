"""What the commands share: the recipe of FILE, and the ports that other systems fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cordee.core import registry
from cordee.core.errors import CordeeError
from cordee.core.ports import images

if TYPE_CHECKING:
    from cordee.core.ports.images import ImageWorkshop
    from cordee.systems.builds.builder import BuildWishes, RecipeBuilder


def say(text: str) -> None:
    """Print progress on standard error."""
    click.echo(text, err=True)


def cluster_option(function: Any) -> Any:
    """Add `--on`."""
    help_text = "Whose profile counts (default: CORDEE_ON, else local)."
    return click.option("--on", "cluster", metavar="CLUSTER", help=help_text)(function)


def workshop() -> ImageWorkshop:
    """Return who knows images.

    Raises:
        CordeeError: no system does.
    """
    found: ImageWorkshop | None = registry.offered(images.PORT)
    if found is None:
        raise CordeeError("no system here knows images", next="install Cordée whole")
    return found


def builder_of(file: str, wishes: BuildWishes) -> RecipeBuilder:
    """Return what makes the image of an EDF.

    Raises:
        DocumentError: the EDF or its recipe is wrong.
    """
    from cordee.systems.builds.builder import RecipeBuilder
    from cordee.systems.builds.cache import own_cache
    from cordee.systems.builds.recipe import load_recipe

    shop = workshop()
    loaded = load_recipe(shop.recipe(file, wishes.cluster))
    return RecipeBuilder(loaded, shop, own_cache().open(), wishes, say)
