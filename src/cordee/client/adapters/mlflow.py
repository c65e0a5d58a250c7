"""MLflow: `log_metric`, `log_metrics`, and `MlflowClient`, by which they and the loggers of frameworks write."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from cordee.client.adapters.tee import Tee, argument


def wrap(module: ModuleType) -> None:
    """Record the metrics that `mlflow.tracking.client.MlflowClient` sends.

    Raises:
        AttributeError: it has not the methods by which they are sent.
    """
    record = Tee("mlflow")
    client = module.MlflowClient
    log_one, log_many = client.log_metric, client.log_batch

    @functools.wraps(log_one)
    def log_metric(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = log_one(self, *args, **kwargs)
        record(
            argument(args, kwargs, 4, "step"), {argument(args, kwargs, 1, "key"): argument(args, kwargs, 2, "value")}
        )
        return result

    @functools.wraps(log_many)
    def log_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = log_many(self, *args, **kwargs)
        try:
            steps: dict[Any, dict[str, Any]] = {}
            for metric in argument(args, kwargs, 1, "metrics") or ():
                steps.setdefault(metric.step, {})[metric.key] = metric.value
            for step, values in steps.items():
                record(step, values)
        except Exception:
            record.lose()
        return result

    client.log_metric, client.log_batch = log_metric, log_batch
