"""From a list of samples to one batch: a column for each field, numbers and arrays of one shape stacked."""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import Any, Callable, Optional, Union

from cordee.systems.data.node.read.batches.columns import SampleTable

Collate = Callable[[Any], Any]
_SHAPE_AND_TYPE = attrgetter("shape", "dtype")


def columns(samples: Union[list[Any], SampleTable]) -> Any:
    """Return samples as a batch of columns.

    Dicts become a dict of columns, tuples a tuple of columns. A column of numbers becomes a NumPy array, of NumPy arrays or
    torch tensors that agree in shape and type one array with a first axis for the samples; anything else, bytes and texts
    too, stays a list. Where a sample lacks a field its place holds None and the column stays a list.
    """
    if isinstance(samples, SampleTable):
        return {
            field: _column(column) if isinstance(column, list) else column for field, column in samples.columns.items()
        }
    first = samples[0]
    if isinstance(first, dict):
        try:
            found = {field: list(map(itemgetter(field), samples)) for field in first}
        except KeyError:
            found = {}
        if len(found) != max(map(len, samples)):
            fields = dict.fromkeys(field for sample in samples for field in sample)
            found = {field: [sample.get(field) for sample in samples] for field in fields}
        return {field: _column(values) for field, values in found.items()}
    if isinstance(first, tuple):
        return tuple(_column([sample[place] for sample in samples]) for place in range(len(first)))
    return _column(samples)


def _column(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, (bytes, str)):
        return values
    if type(first) is int and set(map(type, values)) == {int}:
        return _numpy_stack(values)
    if isinstance(first, (dict, tuple)):
        return columns(values) if all(type(value) is type(first) for value in values) else values
    if _is_torch(first):
        return _stacked(values, _torch_stack)
    if isinstance(first, (bool, int, float)) or hasattr(first, "__array_interface__"):
        return _stacked(values, _numpy_stack)
    return values


def _stacked(values: list[Any], stack: Callable[[list[Any]], Any]) -> Any:
    """Return one array, or the values as they are where they differ in kind, shape or type."""
    if len(set(map(type, values))) == 1 and hasattr(values[0], "dtype"):
        return stack(values) if len(set(map(_SHAPE_AND_TYPE, values))) == 1 else values
    first = values[0]
    shape, kind = getattr(first, "shape", ()), getattr(first, "dtype", None)
    for value in values:
        if getattr(value, "shape", ()) != shape or getattr(value, "dtype", None) != kind or value is None:
            return values
        if isinstance(value, (bytes, str)):
            return values
    return stack(values)


def _numpy_stack(values: list[Any]) -> Any:
    import numpy

    shape = getattr(values[0], "shape", ())
    # What `stack` does, without a view for each value.
    return numpy.concatenate(values).reshape(len(values), *shape) if shape else numpy.array(values)


def _torch_stack(values: list[Any]) -> Any:
    import torch

    return torch.stack(values)


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "is_contiguous")


def mapped(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Return a batch with every column changed."""
    if isinstance(batch, dict):
        return {field: mapped(column, change) for field, column in batch.items()}
    if isinstance(batch, tuple):
        return tuple(mapped(column, change) for column in batch)
    return change(batch)


def array_bytes(batch: Any) -> int:
    """Return the bytes of a batch's arrays and tensors."""
    total = 0

    def count(column: Any) -> None:
        nonlocal total
        total += getattr(column, "nbytes", 0)
        if isinstance(column, list):
            total += sum(getattr(value, "nbytes", 0) for value in column)

    mapped(batch, count)
    return total


def to_torch(column: Any) -> Any:
    """Return a NumPy array as a tensor of the same memory, a list of arrays as one of tensors; anything else as it is."""
    import numpy
    import torch

    if isinstance(column, list) and isinstance(column[0], numpy.ndarray):
        return [to_torch(value) for value in column]
    if isinstance(column, numpy.ndarray) and column.dtype != object and column.dtype.kind not in "SUM":
        return torch.from_numpy(column if column.flags.writeable else column.copy())
    return column


def to_numpy(column: Any) -> Any:
    """Return a list as an array of objects, a tensor as a NumPy array; an array as it is."""
    import numpy

    if _is_torch(column):
        return column.detach().cpu().numpy()
    if isinstance(column, list):
        array = numpy.empty(len(column), object)
        array[:] = column
        return array
    return column


def chained(collate: Optional[Collate], change: Optional[Callable[[Any], Any]]) -> Collate:
    """Return what makes a batch: `collate`, default columns, then `change` of every column."""
    first = collate or columns
    if change is None:
        return first
    return _Chained(first, change)


class _Chained:
    """A collate and a change of its columns; an object, because worker processes are sent it."""

    def __init__(self, collate: Collate, change: Callable[[Any], Any]) -> None:
        self._collate, self._change = collate, change

    def __call__(self, samples: list[Any]) -> Any:
        return mapped(self._collate(samples), self._change)
