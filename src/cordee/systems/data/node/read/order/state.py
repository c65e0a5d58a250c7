"""The position of a data set as a checkpoint keeps it: seven values, the same on all ranks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Mapping

from cordee.core.errors import DataError

SCHEMA = 1


@dataclass(frozen=True)
class ReadState:
    """Where a training is, in which order, of which data set."""

    schema: int
    epoch: int
    position: int
    seed: int
    shuffle: bool
    identity: str
    size: int

    def document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def checked(state: Mapping[str, Any], name: str, identity: str, size: int) -> ReadState:
    """Return a state that was kept, if it is one of the data set `name`, which has that identity and size.

    Raises:
        DataError: it is the position in another data set, of a newer Cordée, or none at all.
    """
    try:
        found = ReadState(
            schema=int(state["schema"]),
            epoch=int(state["epoch"]),
            position=int(state["position"]),
            seed=int(state["seed"]),
            shuffle=bool(state["shuffle"]),
            identity=str(state["identity"]),
            size=int(state["size"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"this is no position in a data set: {type(error).__name__}: {error}",
            given=str(state)[:200],
            allowed="what ds.state_dict() returned",
        ) from None
    if found.schema > SCHEMA:
        raise DataError(
            "the position was saved by a newer Cordée",
            given=f"schema {found.schema}",
            allowed=f"schema {SCHEMA}",
            next="continue with the version that saved it",
        )
    if (found.identity, found.size) != (identity, size):
        raise DataError(
            f"the position is one in another data set than {name}",
            given=f"{found.size} samples, identity {found.identity}",
            allowed=f"{size} samples, identity {identity}",
            next="train on with the data set it was saved for; for another one make the dataset without this state",
        )
    if found.epoch < 0 or not 0 <= found.position < size:
        raise DataError(
            "the position lies outside the data set", given=f"epoch {found.epoch}, sample {found.position} of {size}"
        )
    return found
