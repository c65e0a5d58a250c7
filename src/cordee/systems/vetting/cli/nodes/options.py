"""Options of all commands that read the history."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cordee.job.terminal.options import duration

if TYPE_CHECKING:
    from cordee.job.profile import ClusterProfile
    from cordee.systems.vetting.fleet.history_location import HistoryPlace
    from cordee.systems.vetting.fleet.index import FleetIndex

F = TypeVar("F", bound=Callable[..., Any])


def history_options(function: F) -> F:
    """Add `--history`, `--token-file` and `--on`."""
    for decorate in (
        click.option("--on", "cluster", metavar="CLUSTER", help="Cluster whose profile holds (default: CORDEE_ON)."),
        click.option("--token-file", metavar="FILE", help="Token for a collector (default: the profile's)."),
        click.option(
            "--history", "history", metavar="DIR|URL", help="The history (default: CORDEE_HISTORY, else the profile's)."
        ),
    ):
        function = decorate(function)
    return function


def since_option(default: str) -> Callable[[F], F]:
    """Return the option `--since`."""
    text = f"Only what is younger, such as 7d (default: {default})."
    return click.option("--since", metavar="TIME", default=default, help=text)


def epoch_since(given: str) -> float:
    """Return the UTC epoch seconds of so long ago."""
    return time.time() - duration(given, "--since")


def open_history(
    history: str | None, token_file: str | None, cluster: str | None, audit: str | None = None
) -> tuple[FleetIndex, HistoryPlace, ClusterProfile]:
    """Return the refreshed index of the history, its place, and the profile of the cluster."""
    from cordee.systems.vetting.fleet.history_location import history_place
    from cordee.systems.vetting.fleet.index import FleetIndex
    from cordee.systems.vetting.protocol.site import vetting_profile

    profile = vetting_profile(cluster)
    place = history_place(history, profile, token_file, audit)
    index = FleetIndex(place.refresh())
    index.refresh()
    return index, place, profile
