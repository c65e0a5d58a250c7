"""W&B: `wandb.log` and `Run.log`, online or offline; a disabled run records nothing."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Optional

from cordee.client.adapters.tee import Tee, argument


def wrap(module: ModuleType) -> None:
    """Record what `wandb.sdk.wandb_run.Run.log` takes; `wandb.log` is its method of the run that `wandb.init` began.

    Raises:
        AttributeError: there is no such method.
    """
    record = Tee("wandb")
    original = module.Run.log

    @functools.wraps(original)
    def log(self: Any, *args: Any, **kwargs: Any) -> Any:
        step = argument(args, kwargs, 1, "step")
        given = step is not None
        if not given:
            step = _next_step(self)
        result = original(self, *args, **kwargs)
        record(step, argument(args, kwargs, 0, "data"), counts=given)
        return result

    module.Run.log = log


def _next_step(run: Any) -> Optional[int]:
    """Return the step under which W&B keeps a call that names none: it counts calls."""
    found = getattr(run, "_local_step", None)
    return getattr(run, "_step", None) if found is None else found
