"""Data sets as commands are given them: a path, an address, a name of the job document here or of the site's catalogue."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cordee.job.terminal.options import cluster_name

if TYPE_CHECKING:
    from cordee.job.load import LoadedJob

F = TypeVar("F", bound=Callable[..., Any])


def catalogue_option(function: F) -> F:
    """Add `--on CLUSTER`."""
    return click.option(
        "--on", "cluster", metavar="CLUSTER", help="Whose data sets names mean (default: CORDEE_ON, else local)."
    )(function)


def place_of(given: str, cluster: str | None) -> str:
    """Return where a data set lies; a path that is there goes before a name, and `[data]` here before the catalogue.

    Args:
        cluster: as `--on` was given.

    Raises:
        NoDataSet: it is none of them; the nearest names are said.
        DocumentError: the job document is wrong.
    """
    from cordee.job.cluster import load_cluster
    from cordee.systems.data.catalogue import locate
    from cordee.systems.data.node.read.variables import data_variable

    if "://" in given or os.path.lexists(given) or os.path.lexists(f"{given}.idx"):
        return given
    inside_a_run = os.environ.get(data_variable(given))
    if inside_a_run:
        return inside_a_run
    loaded = _document(given, cluster)
    if loaded is None:
        return locate(given, load_cluster(cluster_name(cluster))).place
    if given in loaded.job.data:
        return locate(loaded.job.data[given].source, loaded.cluster, loaded.folder).place
    return locate(given, loaded.cluster, names=loaded.job.data).place


def _document(given: str, cluster: str | None) -> LoadedJob | None:
    """Return the job document of this folder; None where there is none, or no name of it can be meant."""
    from cordee.job.load import FILE_NAME, load_job

    if os.sep in given or not Path(FILE_NAME).is_file():
        return None
    return load_job(FILE_NAME, cluster=cluster)
