"""`cordee env pull`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cordee.core.errors import UsageError
from cordee.core.registry import said_of_image
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import cluster_name, json_option
from cordee.systems.environments.cli.arrivals import arrival_code, show_findings
from cordee.systems.environments.cli.store import open_store, say, store_options

if TYPE_CHECKING:
    from cordee.systems.environments.images import ImageStore

PULL_SCHEMA = "cordee.pull/1"


@click.command("pull")
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...")
@store_options
@json_option
def command(images: tuple[str, ...], store: str | None, cluster: str | None, as_json: bool) -> None:
    """Fetch images into the store, and pin their names to what they mean now; say what has changed.

    An IMAGE is a reference to a registry in any spelling, an archive, an OCI layout, or an EDF (`*.toml`), whose image is
    taken. Registries are asked through skopeo, with its logins or those of enroot.

    \b
    Example:
      cordee env pull ubuntu:24.04
      cordee env pull nvcr.io#nvidia/pytorch:24.01-py3
      cordee env pull env.toml
      cordee env pull oci-archive:image.tar
    """
    kept = open_store(store, cluster)
    pulled = [_pull(kept, _image_of(image, cluster)) for image in images]
    for each in pulled:
        said = said_of_image(each.pop("looked_at"), cluster_name(cluster)) if each["fetched"] else []
        each["findings"] = [finding.document() for finding in said]
    if as_json:
        print_json({"schema": PULL_SCHEMA, "store": str(kept.folder), "pulled": pulled})
    else:
        for each in pulled:
            click.echo(f"{each['reference']}  {each['digest']}  {_change(each)}")
            show_findings(each["findings"])
    raise click.exceptions.Exit(arrival_code(one for each in pulled for one in each["findings"]))


def _image_of(given: str, cluster: str | None) -> str:
    """Return the image that is meant: that of an EDF when one is given."""
    from cordee.systems.environments.prepare import resolve_here, site_of

    if not given.endswith(".toml"):
        return given
    image = resolve_here(given, site_of(cluster_name(cluster))).environment.image
    if not image:
        raise UsageError("the environment has no image", given=given)
    return image


def _pull(store: ImageStore, image: str) -> dict[str, Any]:
    from cordee.systems.environments.images.locate import import_local, is_archive, missing_path
    from cordee.systems.environments.images.reference import RegistryReference, read_reference
    from cordee.systems.environments.images.registry.pull import pull_image

    source = read_reference(image)
    before = store.pinned(source.name)
    known = {each.digest for each in store.images()}
    if isinstance(source, RegistryReference):
        kept = pull_image(source, store, say=say).image
    else:
        missing_path(source, image)
        if not is_archive(source):
            raise UsageError(
                "there is nothing to fetch: it is used where it lies", given=image, next=f'image = "{source.path}"'
            )
        kept = import_local(source, store, say)
    return {
        "reference": source.name,
        "digest": kept.digest,
        "before": before.digest if before else None,
        "changed": before is not None and before.digest != kept.digest,
        "fetched": kept.digest not in known,
        # An archive still has what later layers delete.
        "looked_at": str(kept.path) if isinstance(source, RegistryReference) else source.path,
        "path": str(kept.path),
        "size_bytes": kept.size_bytes,
    }


def _change(pulled: dict[str, Any]) -> str:
    if pulled["changed"]:
        return f"changed: it was {pulled['before']}"
    if pulled["before"]:
        return "as it was"
    return "new" if pulled["fetched"] else "was in the store under another name"
