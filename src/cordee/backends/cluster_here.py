"""Which cluster is meant where none is named: the one of CORDEE_ON, else the one of the job that this process is in."""

from __future__ import annotations

import os
from collections.abc import Mapping

from cordee.core.backends import BUILT_IN, HERE, backend
from cordee.core.documents.config_paths import profile_folders, profile_names
from cordee.core.documents.files import read_toml
from cordee.core.errors import DocumentError


def cluster_here(given: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Return `given`, else CORDEE_ON, else the cluster whose profile names the scheduler of this job, else `local`."""
    return given or environ.get("CORDEE_ON") or _of_this_job(environ) or HERE


def cluster_of_nodes(
    given: str | None = None, answered: str | None = None, environ: Mapping[str, str] = os.environ
) -> str:
    """Return the cluster whose nodes are meant: as `cluster_here`, but never this machine where nothing names it.

    Args:
        given: the cluster that was named.
        answered: the back end that knew the nodes; None: the first that knows how nodes are connected.
        environ: where variables are read from.
    """
    found = cluster_here(given, environ)
    if found != HERE or given or environ.get("CORDEE_ON"):
        return found
    return answered or next(name for name in BUILT_IN if backend(name).network)


def _of_this_job(environ: Mapping[str, str]) -> str | None:
    """Return the cluster whose profile is about the scheduler that this job runs in."""
    variables = {name: backend(name).cluster_variable for name in BUILT_IN}
    inside = {name: environ[variable] for name, variable in variables.items() if variable and environ.get(variable)}
    if not inside:
        return None
    scheduler, answering = next(iter(inside.items()))
    names = profile_names(environ)
    for name in sorted(names):
        for folder in profile_folders(environ):
            try:
                document = read_toml(folder / f"{name}.toml")[1]
            except DocumentError:
                continue
            if document.get("slurm_cluster") == answering:
                return name
    return answering if answering in names else scheduler if scheduler in names else None
