"""TensorBoard: `SummaryWriter` of torch and tensorboardX, and `tensorboard.summary.Writer`."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from cordee.client.adapters.tee import Tee, argument


def wrap(module: ModuleType) -> None:
    """Record the scalars that a module's writer is given.

    Raises:
        AttributeError: it has no such writer.
    """
    record = Tee("tensorboard")
    if hasattr(module, "SummaryWriter"):
        _wrap_scalar(module.SummaryWriter, record, "scalar_value", "global_step")
        _wrap_scalars(module.SummaryWriter, record)
    else:
        _wrap_scalar(module.Writer, record, "data", "step")


def _wrap_scalar(writer: Any, record: Tee, value: str, step: str) -> None:
    original = writer.add_scalar

    @functools.wraps(original)
    def add_scalar(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        record(argument(args, kwargs, 2, step), {argument(args, kwargs, 0, "tag"): argument(args, kwargs, 1, value)})
        return result

    writer.add_scalar = add_scalar


def _wrap_scalars(writer: Any, record: Tee) -> None:
    """Record `add_scalars`; a curve's name is the main tag, a slash and its own."""
    original = writer.add_scalars

    @functools.wraps(original)
    def add_scalars(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        try:
            main = argument(args, kwargs, 0, "main_tag")
            values = argument(args, kwargs, 1, "tag_scalar_dict")
            record(argument(args, kwargs, 2, "global_step"), {f"{main}/{tag}": value for tag, value in values.items()})
        except Exception:
            record.lose()
        return result

    writer.add_scalars = add_scalars
