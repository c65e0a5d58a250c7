"""`python -m cordee.systems.inference.pool`: the program of the service `endpoint`."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from pathlib import Path

from cordee.core.errors import CordeeError
from cordee.runs.folder import say
from cordee.systems.inference.pool.instance import ModelInstance, ServerKind
from cordee.systems.inference.pool.pool import InstancePool, PoolLimits
from cordee.systems.inference.pool.served import ServedModel


def limits_of(replicas: str) -> tuple[int, int]:
    """Return the least and most of `2` or `1..4`.

    Raises:
        ValueError: it is neither.
    """
    match = re.fullmatch(r"(\d{1,2})(?:\.\.(\d{1,2}))?", replicas)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= most:
        raise ValueError(f"replicas is {replicas!r}; it is a number such as 2, or a range such as 1..4")
    return least, most


def main() -> int:
    """Serve a model until SIGTERM."""
    parser = argparse.ArgumentParser(prog="endpoint")
    for name in ("model", "name", "host", "device", "replicas"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("volume", "names", "access-file"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--port", required=True, type=int)
    parser.add_argument("--in-flight", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=0)
    given = parser.parse_args()
    try:
        least, most = limits_of(given.replicas)
    except ValueError as error:
        say(f"cordee endpoint: {error}")
        return 2
    kind = ServerKind(given.name, given.names, given.device, given.access_file)
    if most == 1:  # one server, and nothing before it
        os.chdir(kind.place(Path(given.model)))
        words = kind.words(given.host, given.port)
        os.execv(words[0], words)
    devices = tuple(one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one)
    limits = PoolLimits(least, most, max(1, given.in_flight), gpus=given.gpus)

    def start(slot: int, served: ServedModel, gpus: tuple[str, ...] | None) -> ModelInstance:
        return ModelInstance(slot, served.serial, Path(served.model), gpus, kind)

    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    try:
        pool = InstancePool(given.volume, given.model, given.host, given.port, limits, devices, start)
        pool.run(lambda: bool(stopped))
    except (CordeeError, OSError) as error:
        say(f"cordee endpoint: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
