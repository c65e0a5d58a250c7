"""Python runs this when it starts with the run's node.zip on PYTHONPATH, where it lies under the name `sitecustomize`.

In a rank it waits for the libraries that have an adapter; each is adapted right after its own import, and one that is
never imported costs nothing. Then it makes room: the next `sitecustomize` on the path runs as if this one were not there.
It imports nothing that Python has not loaded already, because every Python that a rank starts passes here.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` takes longer to import than all that is done here
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Optional, Sequence

# The module in which a library's calls are defined, and the adapters that know them.
TARGETS = {
    "wandb.sdk.wandb_run": "wandb",
    "torch.utils.tensorboard.writer": "tensorboard",
    "tensorboardX.writer": "tensorboard",
    "tensorboard.summary._writer": "tensorboard",
    "mlflow.tracking.client": "mlflow",
    "mlflow.tracking.fluent": "mlflow",
    "torch.distributed.device_mesh": "device_mesh",
    "megatron.core.parallel_state": "megatron",
    "jax._src.clusters": "jax",
    "torch": "pulse repro",
    "random": "repro",
    "numpy.random": "repro",
    "torch.serialization": "loads",
    "joblib.numpy_pickle": "loads",
}


class AfterImport:
    """Finds no module itself, but has those of `targets` adapted once the others have found and executed them."""

    of_cordee = True

    def __init__(self, adapters: Sequence[str]) -> None:
        self.targets: dict[str, list[str]] = {}
        for module, names in TARGETS.items():
            wanted = [name for name in names.split() if name in adapters]
            if wanted:
                self.targets[module] = wanted

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        """Return what the other finders say; called for every import."""
        if name not in self.targets:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: Optional[ModuleSpec] = find(name, path, target) if find is not None else None
            if spec is not None:
                self._follow(spec, self.targets[name])
                return spec
        return None

    def _follow(self, spec: ModuleSpec, adapters: Sequence[str]) -> None:
        """Adapt the module after its loader, which stays the one that it has, has executed it."""
        loader: Any = spec.loader
        try:
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                for adapter in adapters:
                    adapt(adapter, module)

            loader.exec_module = exec_module
        except Exception:
            return


def adapt(adapter: str, module: ModuleType) -> None:
    """Put the adapter's calls around the module's; whatever goes wrong, the module works as without it."""
    try:
        from cordee.client.adapters import tee

        tee.adapt(adapter, module)
    except Exception:
        return


def begin() -> None:
    """Wait for the libraries, in a rank of a run."""
    if not os.environ.get("CORDEE_CHANNEL"):
        return
    adapters = [name for name in os.environ.get("CORDEE_ADAPTERS", "").split(",") if name]
    if "JAX_PROCESS_ID" in os.environ:  # a world is found whatever is recorded
        adapters.append("jax")
    if "CORDEE_PULSE" in os.environ:  # it is no metric: `[hang]` says whether it is wanted
        adapters.append("pulse")
    first = os.environ.get("CORDEE_SCAN") != "off" and os.environ.get("RANK", "0") == "0"
    if first and os.path.exists(os.environ.get("CORDEE_RUN_DIR", "") + "/scan.json"):  # what the gate has looked at
        adapters.append("loads")
    if "CORDEE_SEED" in os.environ or "CORDEE_DETERMINISTIC" in os.environ:
        adapters.append("repro")
        if "random" in sys.modules:  # a .pth file of site-packages has imported it
            adapt("repro", sys.modules["random"])
    if adapters and not any(getattr(finder, "of_cordee", False) for finder in sys.meta_path):
        sys.meta_path.insert(0, AfterImport(adapters))  # type: ignore[arg-type]


def make_room() -> None:
    """Execute the next `sitecustomize` on the path under its name, if there is one."""
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    here = os.path.dirname(__file__)
    after = sys.path.index(here) + 1 if here in sys.path else 0
    spec = PathFinder.find_spec("sitecustomize", sys.path[after:])
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    begin()
    make_room()
