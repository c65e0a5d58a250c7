"""What a Slurm says of itself, as the values of a cluster's profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cordee.backends.slurm.node.commands import SlurmError
from cordee.backends.slurm.site.ask import ask_slurm
from cordee.backends.slurm.site.values import site_values
from cordee.core.backends import HERE
from cordee.core.documents.config_paths import profile_names
from cordee.core.errors import CordeeError, UsageError


def values_here(environ: Mapping[str, str], most_s: float) -> dict[str, Any]:
    """Return the values of a profile of the Slurm that answers here.

    Args:
        environ: where its commands and its configuration are looked up.
        most_s: how long a busy controller is waited for.

    Raises:
        UsageError: no Slurm answers here.
        SlurmError: its controller was busy for all that time.
    """
    try:
        return site_values(ask_slurm(environ, most_s=most_s))
    except SlurmError as error:
        raise no_slurm(error, environ) from None


def no_slurm(error: SlurmError, environ: Mapping[str, str]) -> CordeeError:
    """Return what to raise where Slurm's facts are needed and it did not give them."""
    if error.busy:
        error.next = "try again when its controller answers"
        return error
    return UsageError(
        f"no Slurm answers here: {' '.join(error.said.split())[:300]}",
        given="slurm",
        allowed=[HERE, *sorted(profile_names(environ) - {HERE})],
        next="run it on a login node of the cluster, set SLURM_CONF, or use --on local",
    )
