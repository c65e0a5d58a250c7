"""EDFs laid over each other: for every value, what each file says of it, the one that holds first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cordee.core.documents.toml_lines import Keys
from cordee.systems.environments.edf.fields import ADDITIONS, KEYS, LISTS, SCALARS, GivenValue, annotations_of
from cordee.systems.environments.edf.inherit import Lineage


@dataclass
class MergedEdf:
    """What all the files say, before expansion.

    Attributes:
        scalars: by key.
        tables: `env` and `annotations`: by name and dotted key.
        lists: every entry of `mounts` and `devices`, in their order, the same ones too.
        additions: tables of Cordée's own, by name.
        unknown: what a lenient reading kept.
    """

    scalars: dict[str, list[GivenValue]] = field(default_factory=dict)
    tables: dict[str, dict[str, list[GivenValue]]] = field(default_factory=lambda: {"env": {}, "annotations": {}})
    lists: dict[str, list[GivenValue]] = field(default_factory=lambda: {key: [] for key in LISTS})
    additions: dict[str, list[GivenValue]] = field(default_factory=dict)
    unknown: dict[str, Any] = field(default_factory=dict)


def merge(lineage: Lineage) -> MergedEdf:
    """Return what the files of a lineage say together: scalars and keys of tables by the last, lists one after the other."""
    merged = MergedEdf()
    for edf in lineage.weakest_first:
        for key, value in edf.values.items():
            if key in SCALARS:
                merged.scalars.setdefault(key, []).insert(0, GivenValue(edf, (key,), value))
            elif key in ADDITIONS:
                merged.additions.setdefault(key, []).insert(0, GivenValue(edf, (key,), value))
            elif key not in KEYS:
                merged.unknown[key] = value
        if "annotations" in edf.values:
            for name, given in annotations_of(edf):
                merged.tables["annotations"].setdefault(name, []).insert(0, given)
        for name, value in edf.values.get("env", {}).items():
            keys: Keys = ("env", name)
            merged.tables["env"].setdefault(name, []).insert(0, GivenValue(edf, keys, value))
    for edf in lineage.in_order:
        for key in LISTS:
            entries = edf.values.get(key, ())
            merged.lists[key].extend(GivenValue(edf, (key, index), entry) for index, entry in enumerate(entries))
    return merged
