"""From the name of an EDF to an environment on this machine, as the cluster's profile has it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cordee.systems.environments.edf import Resolved, resolve, search_folders
from cordee.systems.environments.edf.image import config_in, located_if_here
from cordee.systems.environments.images.store.image_store import ImageStore, own_store

if TYPE_CHECKING:
    from cordee.job.profile import EnvironmentSite


class SiteFolders(Protocol):
    """What is used of a cluster's profile: its folders of EDFs and of images."""

    @property
    def search_path(self) -> tuple[str, ...]: ...

    @property
    def store(self) -> str | None: ...


def site_of(cluster: str, environ: Mapping[str, str] = os.environ) -> EnvironmentSite:
    """Return what a cluster's profile says of environments.

    Raises:
        UsageError: no cluster has this name.
        DocumentError: its profile is wrong.
    """
    from cordee.job.cluster import load_cluster

    return load_cluster(cluster, environ).environment


def store_of(site: SiteFolders, environ: Mapping[str, str] = os.environ) -> ImageStore:
    """Return the store of images that a person uses on a cluster."""
    return own_store(environ, site.store)


def resolve_here(
    name: str,
    site: SiteFolders,
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    lenient: bool = False,
) -> Resolved:
    """Return the environment that an EDF describes, for a caller in `cwd` (None: the current folder) with these variables.

    Where its image is on this machine, its variables count in expansion and `config` is filled in; so is `root` where it need
    not be imported first.

    Raises:
        DocumentError: it is not there, or wrong; all faults of all its files are in `findings`.
    """
    store = store_of(site, environ)
    found = resolve(
        name,
        cwd=cwd or Path.cwd(),
        variables=environ,
        search_path=search_folders(environ, site.search_path),
        lenient=lenient,
        config_of=config_in(store),
    )
    return replace(found, environment=located_if_here(found.environment, store))
