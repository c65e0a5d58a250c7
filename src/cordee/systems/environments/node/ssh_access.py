"""What `ssh_server` is asked for, by an agent and by Slurm's plugin alike."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Mapping, Sequence

import cordee
from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.hooks import settings_of

SERVER = "cordee.systems.environments.node.ssh_server"
# In a run's folder: one file for each node that can be connected to.
CONNECT = "connect"


def package_folder() -> str:
    """Return the folder or zip from which this package comes, for PYTHONPATH."""
    return str(Path(cordee.__file__).parents[1])


def ssh_request(
    environment: Environment,
    enter: Sequence[str],
    env: Mapping[str, str],
    workdir: str,
    node: str,
    loopback: bool,
    run_folder: str = "",
) -> bytes:
    """Return what the server reads on its standard input.

    Args:
        environment: whose hook it is.
        enter: the words that lead into the container.
        env: of sessions.
        workdir: where they begin.
        node: the node's name, by which others reach it.
        loopback: whether only this machine may connect.
        run_folder: where it is said how to connect; empty: nowhere.
    """
    image = environment.root is not None and environment.root.kind != "host"
    asked = {
        "enter": list(enter),
        "env": dict(env),
        "workdir": workdir,
        "settings": settings_of(environment.annotations, "ssh"),
        "node": node,
        "loopback": loopback,
        "in_image": image,
        "told": os.path.join(run_folder, CONNECT, f"{node}.json") if run_folder else "",
    }
    return json.dumps(asked).encode("utf-8", "surrogateescape")
