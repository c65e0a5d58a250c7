"""What builds offer: whether an image is still what its recipe and lock say, and where it was pushed to."""

from __future__ import annotations

import tomllib

from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.core.ports.images import PORT, GivenRecipe, ImageWorkshop
from cordee.core.registry import offered
from cordee.systems.builds.errors import BuildError
from cordee.systems.builds.lock import read_lock
from cordee.systems.builds.parts.files import content_digest
from cordee.systems.builds.recipe import LoadedRecipe, load_recipe


def stale_image(given: GivenRecipe, digest: str) -> list[Finding]:
    """Return what has changed since the image of a recipe was built, as warnings.

    Args:
        given: the recipe.
        digest: of the image that would be run; empty: it is not known.
    """
    try:
        loaded = load_recipe(given)
        lock = read_lock(loaded.lock_path)
        made = lock.image if lock else {}
        if lock is None or not made:
            return []
        changed = []
        if digest and made.get("digest") != digest:
            changed.append("the lock is that of another image")
        if made.get("recipe") != loaded.digest:
            changed.append("its recipe has changed")
        if made.get("packages") != lock.packages_digest():
            changed.append("versions were locked anew")
        changed += _copies_changed(loaded, {each["to"]: each["hash"] for each in lock.copies})
    except CordeeError as error:
        return [
            Finding(
                f"the recipe cannot be built: {error.text}",
                "warn",
                "image-stale",
                file=str(given.path),
                next=error.next,
            )
        ]
    if not changed:
        return []
    text = f"the image is not what would be built now: {', '.join(changed)}"
    return [Finding(text, "warn", "image-stale", file=str(given.path), next=f"cordee env build {given.path.name}")]


def pushed_image(file: str, cluster: str) -> str:
    """Return what a registry calls the image of an EDF (the port `pushed-image`)."""
    workshop: ImageWorkshop | None = offered(PORT)
    if workshop is None:
        raise BuildError("no system here knows images", next="install Cordée whole")
    given = workshop.recipe(file, cluster)
    rest = set(tomllib.loads(workshop.plain(file, cluster, None)[0])) - {"image", "entrypoint", "writable"}
    if rest:
        what = "say it in the blueprint ([env], [volumes], image_argv), and name an EDF that only has [build] and image"
        raise BuildError(f"{', '.join(sorted(rest))} of the EDF is in no image", given=str(given.path), next=what)
    lock = read_lock(load_recipe(given).lock_path)
    reference = lock.image.get("pushed") if lock else None
    if reference is None:
        what = f"cordee env build {file}; cordee env push {file} REGISTRY/NAME:TAG"
        raise BuildError("its image is in no registry", given=str(given.path), next=what)
    for one in stale_image(given, ""):
        raise BuildError(one.text, given=str(given.path), next=f"{one.next}; cordee env push {file} REGISTRY/NAME:TAG")
    return reference


def _copies_changed(loaded: LoadedRecipe, before: dict[str, str]) -> list[str]:
    copies = loaded.copies()
    changed = [each for each in copies if before.get(each.target) != content_digest(each.source, each.without)]
    return [f"{each.given.partition(':')[0]} has changed" for each in changed]
