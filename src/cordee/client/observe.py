"""`cordee.observe`: hooks that say where in a step a rank is, so that what it does with its time is told more exactly."""

from __future__ import annotations

import dataclasses
import os
import sys
import weakref
from typing import Any, Iterator, Optional

from cordee.client import rank as _rank
from cordee.client.device_steps import BACKWARD_ENDS, FORWARD, OPTIMIZER, STEP_ENDS, DeviceSteps
from cordee.client.steps import BETWEEN, WITHIN, marks
from cordee.wire.pulse import FOLDER

_MOST_OUTPUTS = 1000
_ACCEPTED = "a torch.nn.Module: plain, DistributedDataParallel, or after fully_shard"
_observed: weakref.WeakSet[Any] = weakref.WeakSet()
_device_steps: Optional[DeviceSteps] = None
_of_optimizers = False


def observe(model: Any) -> None:
    """Tell when steps of a model begin and end: `cordee.observe(model)`; never waits, never raises, changes no result.

    It is not required: what a rank does with its time is seen without it too. With it, time between two steps (seconds, from
    the end of the optimizer to the next forward pass) counts as data where nothing else is seen, and the time within them is told
    apart from it to the microsecond instead of by looks. Where the model is on a CUDA device, only this tells how
    the device spends its steps: events on its own clock, milliseconds of one step at a time, say how long it computed, waited after the
    backward pass for gradients of others, and had nothing to do before the next step; what it waits for within the forward and the
    backward pass, as with FSDP2, counts as computing. Outside a run it does nothing.

    Args:
        model: the module that the loop calls: plain, `DistributedDataParallel`, or after `fully_shard`. Of several, call it
            for each.
    """
    if FOLDER not in os.environ:
        return
    try:
        if model not in _observed:
            _hook(model)
            _observed.add(model)
    except Exception as error:
        _rank.tell_once(f"cordee.observe: {error}; accepted is {_ACCEPTED}; steps are seen without it")


def device_steps() -> Optional[DeviceSteps]:
    """Return what measures the steps of a device, None where nothing does."""
    return _device_steps


def _hook(model: Any) -> None:
    global _device_steps
    hook_before = getattr(model, "register_forward_pre_hook", None)
    if hook_before is None:
        raise TypeError(f"this is a {type(model).__name__}")
    if getattr(model, "_compiled_call_impl", None) is not None:
        raise TypeError("it was compiled in place, with its hooks: call this before `model.compile()`")
    torch: Any = sys.modules["torch"]
    _hook_optimizers()
    hook_before(_begins)
    if any(parameter.device.type == "cuda" for parameter in model.parameters()):
        if _device_steps is None:

            def event() -> Any:
                recorded = torch.cuda.Event(enable_timing=True)
                recorded.record()
                return recorded

            _device_steps = DeviceSteps(event)
        model.register_forward_hook(_computed, prepend=True)


def _hook_optimizers() -> None:
    global _of_optimizers
    if _of_optimizers:
        return
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(_updates)
    register_optimizer_step_post_hook(_updated)
    _of_optimizers = True


def _passes(place: int) -> None:
    steps = _device_steps
    if steps is not None:
        try:
            steps.passes(place)
        except Exception:  # a device that fails shows in the training, not here
            return


def _begins(module: Any, inputs: Any) -> None:
    marks.enter(WITHIN)
    if module.training:
        _passes(FORWARD)


def _updates(*_: Any) -> None:
    marks.enter(WITHIN)
    _passes(OPTIMIZER)


def _updated(*_: Any) -> None:
    marks.enter(BETWEEN)
    _passes(STEP_ENDS)


def _computed(module: Any, inputs: Any, output: Any) -> None:
    """Have the end of the backward pass seen: what is queued as it begins is done before DDP waits for other ranks."""
    if not module.training:
        return
    try:
        first = next((one for one in _tensors(output) if one.requires_grad), None)
        if first is not None:
            first.register_hook(_goes_back)
    except Exception:
        return


def _goes_back(gradient: Any) -> None:
    try:
        sys.modules["torch"].autograd.Variable._execution_engine.queue_callback(lambda: _passes(BACKWARD_ENDS))
    except Exception:
        return


def _tensors(output: Any) -> Iterator[Any]:
    """Yield the tensors of what a model returns, in lists, tuples, mappings and dataclasses."""
    waiting, seen = [output], 0
    while waiting and seen < _MOST_OUTPUTS:
        one, seen = waiting.pop(), seen + 1
        if hasattr(one, "register_hook"):
            yield one
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, (list, tuple)):
            waiting += one
        elif dataclasses.is_dataclass(one) and not isinstance(one, type):
            waiting += [getattr(one, field.name) for field in dataclasses.fields(one)]
