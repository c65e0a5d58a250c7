"""MLflow: `log_metric`, `log_metrics`, and `MlflowClient`, by which they and the loggers of frameworks write."""

from __future__ import annotations

import functools
import threading
from types import ModuleType
from typing import Any

from cordee.client.adapters.tee import Tee, argument

# In a thread, while the script calls a function of the module itself without a step: the client is told 0 then.
_call = threading.local()


def wrap(module: ModuleType) -> None:
    """Record the metrics that `mlflow.tracking.client.MlflowClient` sends.

    Raises:
        AttributeError: it has not the methods by which they are sent.
    """
    if module.__name__.endswith("fluent"):
        module.log_metric = _noting_no_step(module.log_metric, 2)  # type: ignore[attr-defined]
        module.log_metrics = _noting_no_step(module.log_metrics, 1)  # type: ignore[attr-defined]
        return
    record = Tee("mlflow")
    client = module.MlflowClient
    log_one, log_many = client.log_metric, client.log_batch

    @functools.wraps(log_one)
    def log_metric(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = log_one(self, *args, **kwargs)
        step = None if getattr(_call, "has_no_step", False) else argument(args, kwargs, 4, "step")
        record(step, {argument(args, kwargs, 1, "key"): argument(args, kwargs, 2, "value")})
        return result

    @functools.wraps(log_many)
    def log_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = log_many(self, *args, **kwargs)
        try:
            steps: dict[Any, dict[str, Any]] = {}
            for metric in argument(args, kwargs, 1, "metrics") or ():
                step = None if getattr(_call, "has_no_step", False) else metric.step
                steps.setdefault(step, {})[metric.key] = metric.value
            for step, values in steps.items():
                record(step, values)
        except Exception:
            record.lose()
        return result

    client.log_metric, client.log_batch = log_metric, log_batch


def _noting_no_step(original: Any, at: int) -> Any:
    @functools.wraps(original)
    def log(*args: Any, **kwargs: Any) -> Any:
        _call.has_no_step = argument(args, kwargs, at, "step") is None
        try:
            return original(*args, **kwargs)
        finally:
            _call.has_no_step = False

    return log
