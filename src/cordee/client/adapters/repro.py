"""random, NumPy and torch: seeded, and told to be deterministic, where the job's `[repro]` says so. It changes how a script computes."""

from __future__ import annotations

import os
from types import ModuleType


def wrap(module: ModuleType) -> None:
    """Seed the module that was just imported; the script may do so again.

    Every rank begins with the same seed, so that a model which each rank makes for itself is one model.

    Raises:
        AttributeError: the library has none of these settings.
    """
    seed = os.environ.get("CORDEE_SEED")
    if seed is not None:
        (module.manual_seed if module.__name__ == "torch" else module.seed)(int(seed))
    if module.__name__ == "torch" and "CORDEE_DETERMINISTIC" in os.environ:
        module.use_deterministic_algorithms(True)
        module.set_float32_matmul_precision("highest")
        cudnn = module.backends.cudnn
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32 = True, False, False
