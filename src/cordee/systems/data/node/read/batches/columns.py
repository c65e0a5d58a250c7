"""Samples of one block that all have the same fields, kept as columns: a batch of columns needs no dict for each sample."""

from __future__ import annotations

from collections.abc import Sequence as SequenceClass
from typing import Any, Iterator, Union, overload

Column = Any  # a list, or an array with a first axis for the samples


class SampleTable(SequenceClass):
    """A sequence of samples; each is made into a dict where it is asked for.

    Args:
        columns: by field, all of one length.
    """

    def __init__(self, columns: dict[str, Column]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> "SampleTable": ...
    def __getitem__(self, place: Union[int, slice]) -> Any:
        if isinstance(place, slice):
            return SampleTable({field: column[place] for field, column in self.columns.items()})
        return {
            field: column[place] if type(column) is list else column[place].item()
            for field, column in self.columns.items()
        }

    def __iter__(self) -> Iterator[dict[str, Any]]:
        fields = list(self.columns)
        for values in zip(*map(_listed, self.columns.values())):
            yield dict(zip(fields, values))


def _listed(column: Column) -> "list[Any]":
    return column if isinstance(column, list) else list(column.tolist())
