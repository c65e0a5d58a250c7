"""What a system leaves behind, as the catalogue of data sets is told of it; names, types and words come from the code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


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
        source: what writes it.
        documents: functions that write its documents: their keys are its fields.
        said: classes whose docstrings say what those keys mean.
        parts: classes whose fields stand in it, by what stands before their names, as `nodes[].`.
        sources: what writes the fields of a part, where another does.
    """

    name: str
    title: str
    where: str
    form: str
    read: str
    meaning: str
    source: str
    documents: tuple[Callable[..., Any], ...]
    said: tuple[type, ...] = ()
    parts: Mapping[str, type] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
