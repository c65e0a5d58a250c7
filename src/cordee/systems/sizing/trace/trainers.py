"""What a script of Lightning finds: a trainer that takes a CPU and one rank, writes nothing, and says how the model was to be divided."""

# mypy: ignore-errors
from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys

_TRAINERS = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer", "lightning.fabric.fabric")
_QUIET = {
    "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
    "num_sanity_val_steps": 0, "profiler": None, "sync_batchnorm": False,
}  # fmt: skip
# What a CPU does instead; the scaler of fp16 has no memory of its own.
_PRECISIONS = {"16-mixed": "bf16-mixed", "16": "bf16-mixed", "16-true": "bf16-true"}


def strategy_of(given):
    """Return how a strategy of Lightning divides a model: `ddp`, `fsdp`, empty for what is not known."""
    name = (given if isinstance(given, str) else type(given).__name__).lower()
    return next((one for one in ("fsdp", "ddp") if one in name), "")


def patch(torch, stand):
    """Let trainers of Lightning be so when the script imports them."""

    def changed(trainer):
        plain = trainer.__init__

        def made(self, *args, **options):
            several = options.get("devices", "auto") not in (1, "1", [0], "auto") or options.get("num_nodes", 1) > 1
            asked = strategy_of(options.get("strategy", "auto")) or ("ddp" if several else "")
            stand.strategy = stand.strategy or asked
            options |= {"accelerator": "cpu", "devices": 1, "num_nodes": 1, "strategy": "auto"}
            precision = options.get("precision")
            options["precision"] = _PRECISIONS.get(str(precision), precision)
            if trainer.__name__ == "Trainer":
                options |= _QUIET
                for name in ("plugins", "callbacks"):
                    options.pop(name, None)
                core = sys.modules[trainer.__module__.replace("trainer.trainer", "core.module")]
                # What nobody computed is not kept.
                core.LightningModule.log = core.LightningModule.log_dict = lambda *args, **options: None
            plain(self, *args, **options)

        trainer.__init__ = made

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name not in _TRAINERS:
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            if spec is not None:
                run = spec.loader.exec_module

                def exec_module(module):
                    run(module)
                    changed(module.Fabric if name.endswith("fabric") else module.Trainer)

                spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder())
