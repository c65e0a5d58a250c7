"""JAX: `jax.distributed.initialize()` without arguments finds the world that the rank's JAX_* variables describe.

JAX itself reads only the coordinator's address from them; how many processes there are, and which one this is, it asks of
the clusters that it knows.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any, Optional

_BEFORE = ("ompi", "slurm")  # what a launcher inside the rank, or Slurm, says of the process goes first


def wrap(module: ModuleType) -> None:
    """Make the run known to `jax._src.clusters` as a cluster.

    Raises:
        AttributeError: JAX has no clusters of the form that is known here.
    """
    base: Any = module.ClusterEnv
    known: list[Any] = base._cluster_types

    class CordeeCluster(base):  # type: ignore[misc]
        name = "cordee"

        @classmethod
        def is_env_present(cls) -> bool:
            return all(
                name in os.environ for name in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
            )

        @classmethod
        def get_coordinator_address(cls, *args: Any, **kwargs: Any) -> str:
            return os.environ["JAX_COORDINATOR_ADDRESS"]

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["JAX_NUM_PROCESSES"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["JAX_PROCESS_ID"])

        @classmethod
        def get_local_process_id(cls) -> Optional[int]:
            """Return which of the node's GPUs the rank takes; None, all of them, where it is alone on its node."""
            alone = os.environ.get("LOCAL_WORLD_SIZE", "1") == "1"
            return None if alone else int(os.environ["LOCAL_RANK"])

    known.remove(CordeeCluster)  # JAX itself has put it at the end, after Kubernetes, whose pods may hold a whole run
    known.insert(sum(cluster.name in _BEFORE for cluster in known), CordeeCluster)
