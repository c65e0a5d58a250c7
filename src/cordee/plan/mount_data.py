"""What the ranks in a container must see of a job's data sets: mounts at the same paths, read-only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cordee.data.look import look
from cordee.environment.document import Environment, Mount
from cordee.plan.model import DataSet


def places_to_see(data: DataSet) -> list[str]:
    """Return the paths of the host that hold a data set: its own, and where its shards lie; none for an object store."""
    if "://" in data.place:
        return []
    place = data.place if os.path.exists(data.place) else os.path.dirname(data.place)
    elsewhere = look(data.place).elsewhere if data.kind == "packed" else None
    if elsewhere is None and data.kind == "packed" and os.path.isfile(place):
        place = os.path.dirname(place)
    return [place, *([elsewhere] if elsewhere is not None and "://" not in elsewhere else [])]


def visible(environment: Environment, place: str) -> bool:
    """Return whether a path of the host is seen inside under the same path, or something was put there on purpose."""
    covering = [mount for mount in environment.mounts if _is_below(place, mount.target)]
    nearest = max(covering, key=lambda mount: len(mount.target), default=None)
    if nearest is None:
        return False
    return nearest.target == place or nearest.source == nearest.target


def with_data(environment: Environment, data: Sequence[DataSet], job_folder: Path) -> Environment:
    """Return the environment with read-only mounts of the data sets that it does not show yet.

    What lies in the job's folder is seen with it.
    """
    if environment.root is None or environment.root.kind == "host":
        return environment
    for one in data:
        for place in places_to_see(one):
            if place != "/" and not visible(environment, place) and not _is_below(place, str(job_folder)):
                environment = replace(environment, mounts=(*environment.mounts, Mount(place, place, ("ro",))))
    return environment


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
