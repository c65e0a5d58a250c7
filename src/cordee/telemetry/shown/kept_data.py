"""What a system leaves behind, as the catalogue of data sets is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class KeptData:
    """One data set of a system.

    Attributes:
        name: short and stable, such as `score`.
        title: for people.
        where: the files in the run's folder, or the command, that hold it.
        form: how it is laid out.
        read: how Python, and programs, read it.
        meaning: a sentence or two.
        parts: classes whose fields stand in it, by what stands before their names, as `nodes[].`.
    """

    name: str
    title: str
    where: str
    form: str
    read: str
    meaning: str
    parts: Mapping[str, type] = field(default_factory=dict)
