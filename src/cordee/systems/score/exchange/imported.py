"""What an importer has found in other tools' files, before it becomes a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from cordee.telemetry.node.recording import RecordedRank


@dataclass
class ImportedSeries:
    """Samples of one metric of one device, in pieces as they were read: UTC epoch seconds and values, NaN = missing."""

    times: list[np.ndarray] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)

    def add(self, times: Sequence[float] | np.ndarray, values: Sequence[float] | np.ndarray) -> None:
        """Add a piece; both have one length."""
        import numpy as np

        self.times.append(np.asarray(times, dtype=np.float64))
        self.values.append(np.asarray(values, dtype=np.float64))

    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        """Return times and values in the order of time; of two samples of one moment the last that is not NaN counts."""
        import numpy as np

        times, values = np.concatenate(self.times), np.concatenate(self.values)
        if len(times) < 2 or (np.diff(times) > 0).all():
            return times, values
        order = np.lexsort((np.arange(len(times)), ~np.isnan(values), times))
        times, values = times[order], values[order]
        last = np.append(times[1:] != times[:-1], True)
        return times[last], values[last]


@dataclass
class FoundDevice:
    """One GPU or instance of one.

    Attributes:
        about: its facts, as `cordee.telemetry.node.blocklog.encode_facts` has them.
        raw: the series by the name that the other tool gave them, later by the catalogue's name in `metrics`.
    """

    node: str
    key: str
    about: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, ImportedSeries] = field(default_factory=dict)
    metrics: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def series(self, name: str) -> ImportedSeries:
        """Return the series of this name, new where there is none."""
        return self.raw.setdefault(name, ImportedSeries())


@dataclass
class ImportedSamples:
    """A job's samples out of other tools' files.

    Attributes:
        tool: what wrote the files, for remarks: `gssr 0.4.0`.
        source: what measured: `dcgm`.
        cadence_s: seconds between samples.
        devices: by (node, key).
        ranks: processes by node, where the files tell them.
        missing: why a metric is not there, by name.
        unknown: how many values were left out, by the name that no standard metric answers to.
    """

    tool: str
    source: str
    cadence_s: float
    devices: dict[tuple[str, str], FoundDevice] = field(default_factory=dict)
    ranks: dict[str, list[RecordedRank]] = field(default_factory=dict)
    job: str = ""
    step: str = ""
    world_size: int | None = None
    missing: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def device(self, node: str, key: str) -> FoundDevice:
        """Return this device, new where it was not known."""
        return self.devices.setdefault((node, key), FoundDevice(node, key))

    def remark(self, sentence: str) -> None:
        """Add a sentence for the reader of the samples, once."""
        if sentence not in self.remarks:
            self.remarks.append(sentence)
