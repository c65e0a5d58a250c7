"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cordee.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")(function)


def runs_option(function: F) -> F:
    """Add `--runs DIR`."""
    return click.option(
        "--runs",
        "runs",
        metavar="DIR",
        help="Folder that holds the runs (default: CORDEE_RUNS, else the cluster's own, else ./runs).",
    )(function)


def spec_arguments(function: F) -> F:
    """Add SPEC and what changes it."""
    for decorate in reversed(
        [
            click.argument("spec", default=".", required=False),
            click.option("--on", "cluster", metavar="CLUSTER", help="Where to run (default: CORDEE_ON, else local)."),
            click.option("--nodes", type=click.IntRange(1), metavar="N", help="Number of nodes, over [need] nodes."),
            click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set any key, as need.time=2h."),
        ]
    ):
        function = decorate(function)
    return function


def runs_folder(given: str | None) -> Path | None:
    """Return the folder for a new run: the flag or CORDEE_RUNS; None leaves it to the cluster's profile."""
    chosen = given or os.environ.get("CORDEE_RUNS")
    return Path(chosen).absolute() if chosen else None


def runs_folders(given: str | None) -> list[Path]:
    """Return the folders in which runs are looked for: the flag's, CORDEE_RUNS, else `runs` here and those of profiles."""
    from cordee.runs.places import profile_runs

    chosen = runs_folder(given)
    return [chosen] if chosen else list(dict.fromkeys([Path("runs").absolute(), *profile_runs()]))


def cluster_name(given: str | None) -> str:
    """Return the cluster to run on: the flag, CORDEE_ON, or local."""
    return given or os.environ.get("CORDEE_ON") or "local"


def flags(nodes: int | None, settings: tuple[str, ...]) -> dict[str, Any]:
    """Return `{dotted key: value}` of the flags; values are read as TOML values, else as strings.

    Raises:
        UsageError: a setting is not KEY=VALUE.
    """
    import tomllib

    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise UsageError("a setting is KEY=VALUE", given=setting, allowed="need.time=2h, restart.retries=5")
        try:
            found[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            found[key.strip()] = text
    if nodes is not None:
        found["need.nodes"] = nodes
    return found
