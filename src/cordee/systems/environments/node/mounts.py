"""What every container of a run must see of the host: the run's own folders, at their own paths."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Sequence

from cordee.systems.environments.node.document import SQUASHFS_FLAG, ContainerMount, Environment


def with_own_mounts(environment: Environment, paths: Sequence[str]) -> Environment:
    """Return the environment with the folders that ranks need mounted at their own paths, where they are not yet.

    What the EDF mounts at such a path itself stays. A folder that lies in another one, or in what the EDF mounts at its
    own path and writable, is there already.

    Args:
        environment: as resolved.
        paths: absolute paths of folders on the host; those that are not there are left out.
    """
    mounts = list(environment.mounts)
    if environment.root is None or environment.root.kind == "host":
        mounts.append(ContainerMount("/", "/"))
    first = len(mounts)
    for path in sorted({os.path.normpath(path) for path in paths if os.path.isdir(path)}):
        covering = [mount for mount in mounts if _is_below(path, mount.target)]
        nearest = max(reversed(covering), key=lambda mount: len(mount.target), default=None)
        if nearest is None or not _shows(nearest, path):
            mounts.append(ContainerMount(path, path))
    return replace(environment, mounts=(*environment.mounts, *mounts[first:]))


def _shows(mount: ContainerMount, path: str) -> bool:
    """Return whether a mount shows the host's path at the same place, or was put there by the EDF on purpose."""
    if mount.target == path:
        return True
    return mount.source == mount.target and not {"ro", SQUASHFS_FLAG} & set(mount.flags)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
