"""Batches as JAX arrays: of this process, or its part of arrays that all processes share."""

from __future__ import annotations

from typing import Any, Iterator

from cordee.core.errors import UsageError
from cordee.systems.data.node.read.batches.collate import mapped


def jax_batches(batches: Iterator[Any], sharding: Any) -> Iterator[Any]:
    """Yield batches with numeric NumPy columns as JAX arrays, with `sharding` as parts of global ones.

    Raises:
        UsageError: a part cannot be sharded that way.
    """
    import jax
    import numpy

    def placed(column: Any) -> Any:
        if not isinstance(column, numpy.ndarray) or column.dtype.kind not in "biufc":
            return column
        if sharding is None:
            return jax.numpy.asarray(column)
        try:
            return jax.make_array_from_process_local_data(sharding, column)
        except ValueError as error:
            raise UsageError(
                f"a batch cannot be shared out as the sharding says: {error}",
                given=f"{column.shape} on this process",
                next='choose a batch that the devices divide, and last="drop"',
            ) from None

    try:
        for batch in batches:
            yield mapped(batch, placed)
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()
