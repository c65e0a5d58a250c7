"""What the catalogue says of one data set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DataField:
    """One field of a data set.

    Attributes:
        name: as it stands in the data; `nodes[].node` is inside a list.
        unit: of numbers; times are UTC. Empty where it has none.
        kind: the type as the code has it, where it says one.
        source: what measures or writes it.
        meaning: one sentence, empty where the name says all.
    """

    name: str
    unit: str = ""
    kind: str = ""
    source: str = ""
    meaning: str = ""


@dataclass(frozen=True)
class ReportDataSet:
    """One data set.

    Attributes:
        name: short and stable, such as `samples/gpu`.
        title: for people.
        where: the files in the run's folder, or the command, that hold it.
        form: how it is laid out.
        read: how Python, and programs, read it.
        meaning: a sentence or two.
        fields: what it holds.
    """

    name: str
    title: str
    where: str
    form: str
    read: str
    meaning: str
    fields: tuple[DataField, ...]
