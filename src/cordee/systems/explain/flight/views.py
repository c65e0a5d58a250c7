"""What a run's or a folder's dumps say: as the command and the page show it.

`python -m cordee.systems.explain.flight.views RUN` prints the document of `cordee flight RUN --matrix --json`: for the server, since
dumps are large and whatever they hold must not end it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cordee.core.errors import CordeeError, UsageError
from cordee.runs.folder import RunFolder
from cordee.systems.explain.flight.analysis import Flight, analyse
from cordee.systems.explain.flight.dump_file import DumpError, bounded_memory, load_dump
from cordee.systems.explain.flight.files import find_dumps
from cordee.systems.explain.flight.rank_positions import add_places, mesh_of, state_of

_NICE = 10


def flight_of_run(run: RunFolder, attempt: int | None, *, matrix: bool) -> tuple[Flight, dict[str, Any]]:
    """Return what the dumps of a run say, and as the document that `--json` prints.

    Args:
        attempt: whose dumps; None: the newest.
        matrix: whether to add up who sent how much to whom, and who waited for whom.

    Raises:
        UsageError: there are no dumps.
    """
    folder = run.root / "flight"
    if not folder.is_dir():
        raise UsageError("this run has no dumps", given=run.id, next="PyTorch writes them when a collective times out")
    state = state_of(run)
    flight = analyse(find_dumps(folder, attempt), state.world_size)
    add_places(flight.findings, run, state)
    document = flight.document()
    if matrix:
        nodes = {rank.rank: rank.node for rank in state.ranks if rank.node}
        document["traffic"] = traffic_of(flight, mesh_of(run), nodes)
    return flight, document


def flight_of_folder(folder: Path, attempt: int | None, *, matrix: bool) -> tuple[Flight, dict[str, Any]]:
    """Return what the dumps of a folder say; for the rest see `flight_of_run`."""
    flight = analyse(find_dumps(folder, attempt))
    document = flight.document()
    if matrix:
        document["traffic"] = traffic_of(flight, {}, {})
    return flight, document


def traffic_of(
    flight: Flight, places: Mapping[int, Mapping[str, int]], nodes: Mapping[int, str]
) -> dict[str, Any] | None:
    """Return who sent how much to whom, and who waited for whom; None where no dump was read."""
    from cordee.systems.explain.flight.traffic import Traffic

    if not flight.files:
        return None
    world = max(flight.world, max(flight.files) + 1)
    traffic = Traffic(world, list(flight.files), places, nodes, flight.members, flight.apart)
    with bounded_memory():
        for rank, file in flight.files.items():
            try:
                traffic.add(rank, load_dump(file))
            except DumpError as error:  # it was read a moment ago
                traffic.uncounted[f"a dump that cannot be read any more: {error}"] += 1
        return traffic.document()


def main(folder: str) -> None:
    """Print what a run's dumps say, or the error document that says why nothing can be said."""
    os.nice(_NICE)
    try:
        _, document = flight_of_run(RunFolder(Path(folder)), None, matrix=True)
    except CordeeError as error:
        document = error.document()
    json.dump(document, sys.stdout, allow_nan=False)


if __name__ == "__main__":
    main(sys.argv[1])
