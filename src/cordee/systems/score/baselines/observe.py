"""What a run reached, as quantities with their noise: what baselines are made of and compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import cordee
from cordee.systems.score.baselines.noise import ratio_noise
from cordee.systems.score.identity import levels
from cordee.systems.score.result import CLASSES, Caps, Saturation
from cordee.systems.score.trace.model import ScoreTrace

_MOST_WINDOWS = 400
_LARGEST = 1e30
_SPEEDS = ("tokens", "samples", "images", "sequences", "steps", "flops")


@dataclass(frozen=True)
class Quantity:
    """A number of one run.

    Attributes:
        noise: how far it may be off by chance (standard error), None where the run is too short to say.
        freedom: degrees of freedom of the noise.
    """

    value: float
    unit: str
    noise: float | None = None
    freedom: float | None = None


@dataclass(frozen=True)
class Observation:
    """A run's quantities, and what they may be compared with.

    Attributes:
        models: how many devices of each model; of cores how many nodes with these processors.
        caps: what counted as full, by model: pipes and `dram`.
        assumed: of time, breadth and depth what was not measured.
    """

    kind: str
    source: str
    models: dict[str, int]
    nodes: int
    devices: int
    world_size: int
    seconds: float
    cadence_s: float
    version: str
    quantities: dict[str, Quantity]
    workload: str = ""
    assumed: tuple[str, ...] = ()
    caps: dict[str, dict[str, float]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def hardware(self) -> tuple[str, str, int]:
        """What it ran on, for comparing."""
        return self.kind, self.models_text(), self.devices

    def models_text(self) -> str:
        """Return the models of the devices, for people."""
        return ", ".join(sorted(model or "unknown model" for model in self.models))

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {**asdict(self), "assumed": list(self.assumed), "remarks": list(self.remarks)}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Observation:
        """Rebuild it from `document()`; keys of newer versions are ignored.

        Raises:
            ValueError: it is damaged; says where.
        """
        from pydantic import TypeAdapter, ValidationError

        try:
            found: Observation = TypeAdapter(cls).validate_python(document)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        found._check()
        return found

    def _check(self) -> None:
        """Raise ValueError when a number cannot be."""
        if "score" not in self.quantities:
            raise ValueError("a run has no score")
        positive = {"seconds": self.seconds, "cadence_s": self.cadence_s, "devices": self.devices}
        for name, quantity in self.quantities.items():
            positive |= {f"{name}.freedom": quantity.freedom} if quantity.freedom is not None else {}
            noise = 0.0 if quantity.noise is None else quantity.noise
            if not (abs(quantity.value) < _LARGEST and 0 <= noise < _LARGEST):
                raise ValueError(f"{name} is no number that can be")
        for name, value in positive.items():
            if not 0 < value < _LARGEST:
                raise ValueError(f"{name} is not above 0")
        for model, caps in self.caps.items():
            if "dram" not in caps or not all(0 < cap < _LARGEST for cap in caps.values()):
                raise ValueError(f"the caps of {model} are no shares")


def observe(trace: ScoreTrace, saturation: Saturation, workload: str = "") -> Observation:
    """Return what a run reached, with the noise of one run from its own windows.

    Args:
        saturation: the scoring of this trace.
        workload: its name, empty where nobody gave one.
    """
    by_model = {cap.model: cap for cap in saturation.caps}
    models: dict[str, int] = {}
    for device in trace.devices:
        model = _processor(trace, device.node) if trace.kind == "cpu" else device.model
        models[model] = models.get(model, 0) + 1
    return Observation(
        kind=saturation.kind,
        source=saturation.source,
        models=models,
        nodes=len({device.node for device in trace.devices}),
        devices=len(trace.devices),
        world_size=saturation.job.world_size,
        seconds=saturation.seconds,
        cadence_s=saturation.cadence_s,
        version=cordee.__version__,
        quantities=_quantities(trace, saturation, by_model),
        workload=workload,
        assumed=tuple(saturation.assumed),
        caps={model: _cap(cap) for model, cap in by_model.items()},
    )


def decider_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the quantities on which a verdict rests: the score, one speed of the application, energy per unit of its work."""
    speed = next((of for of in _SPEEDS if f"{of}_per_s" in names), None)
    found = ["score"] if "score" in names else []
    if speed is not None:
        found += [name for name in (f"{speed}_per_s", _energy_name(speed)) if name in names]
    return tuple(found)


def more_is_worse(name: str) -> bool | None:
    """Return whether more of a quantity is worse; None where neither is."""
    if name.startswith("energy_per_"):
        return True
    return None if name.startswith("class ") or name == "power" else False


def _processor(trace: ScoreTrace, node: str) -> str:
    """Return model and cores of a node's processors, as far as its sampler told them."""
    known = trace.facts.get("node", {}).get(node, {}).get("devices", {}).get(node, {})
    model, cores = known.get("model") or "CPU", known.get("cores")
    return f"{model}, {cores} cores" if cores else str(model)


def _cap(cap: Caps) -> dict[str, float]:
    return {**{pipe: round(value, 4) for pipe, value in cap.pipe.items()}, "dram": round(cap.dram, 4)}


def _quantities(trace: ScoreTrace, saturation: Saturation, caps: dict[str, Caps]) -> dict[str, Quantity]:
    windows = _Windows(trace.times, trace.cadence_s)
    shares, found = saturation.shares, {}
    samples, graphics, sm, sol = _identity(trace, caps, windows)
    for name, value, unit, above, below, scale in (
        ("score", shares.score, "points", sol, samples, 100.0),
        ("time", shares.time, "ratio", graphics, samples, 1.0),
        ("breadth", shares.breadth, "ratio", sm, graphics, 1.0),
        ("depth", shares.depth, "ratio", sol, sm, 1.0),
    ):
        if value is not None:
            found[name] = _with_noise(value, unit, above, below, scale)
    found |= _classes(saturation)
    found |= _work(trace, saturation, windows)
    return found


def _identity(
    trace: ScoreTrace, caps: dict[str, Caps], windows: _Windows
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return samples, G, S and SOL of all devices together, summed over each window."""
    found = levels(trace, [caps[device.model] for device in trace.devices])
    weights = np.array([device.share for device in trace.devices])
    there = np.isfinite(found.graphics) & np.isfinite(found.sm) & np.isfinite(found.sol)
    tables = (np.where(there, values, np.float32(0)) for values in (there, found.graphics, found.sm, found.sol))
    samples, graphics, sm, sol = (windows.sums(table @ weights) for table in tables)
    return samples, graphics, sm, sol


def _classes(saturation: Saturation) -> dict[str, Quantity]:
    """Return the share of every class that occurs."""
    codes, found = saturation.windows.classes, {}
    known = (codes >= 0).sum(axis=1).astype(np.float64)
    for code, name in enumerate(CLASSES):
        of_class = (codes == code).sum(axis=1).astype(np.float64)
        if of_class.any():
            found[f"class {name}"] = _with_noise(of_class.sum() / known.sum(), "ratio", of_class, known)
    return found


def _work(trace: ScoreTrace, saturation: Saturation, windows: _Windows) -> dict[str, Quantity]:
    """Return power, the speeds that the application logged, and the energy for a unit of its work."""
    found = {}
    watts = trace.load("gpu_power_watts") if trace.kind == "gpu" else None
    known = None if watts is None else np.isfinite(watts)
    joules = None
    if watts is not None and known is not None and known.any():
        total = windows.sums(np.where(known, watts, 0).sum(axis=1, dtype=np.float64))
        count = windows.sums(known.sum(axis=1).astype(np.float64))
        found["power"] = _with_noise(float(total.sum() / count.sum()), "watts", total, count)
        joules = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0) * len(trace.devices)
        joules *= windows.lengths_s
    for name in _SPEEDS:
        rate, done = saturation.rates.get(f"{name}_per_s"), None
        if rate is not None and name in trace.logged:
            logged = trace.logged[name]
            done = windows.events(logged.times, logged.values)
            found[f"{name}_per_s"] = _with_noise(rate, f"{name}/s", done, windows.lengths_s)
        elif rate is not None and f"{name}_per_s" in trace.logged:
            logged = trace.logged[f"{name}_per_s"]
            calls = windows.events(logged.times, np.ones(len(logged.values)))
            total = windows.events(logged.times, logged.values)
            found[f"{name}_per_s"] = _with_noise(rate, f"{name}/s", total, calls)
        energy = saturation.energy_joules
        if done is not None and done.sum() > 0 and energy is not None and joules is not None:
            found[_energy_name(name)] = _with_noise(energy / float(done.sum()), "joules", joules, done)
    return found


def _energy_name(work: str) -> str:
    return f"energy_per_{work if work == 'flops' else work.removesuffix('s')}"


def _with_noise(value: float, unit: str, above: np.ndarray, below: np.ndarray, scale: float = 1.0) -> Quantity:
    """Return a quantity, with the noise of the ratio that it is, relative to the value that the windows give."""
    noise = ratio_noise(above, below)
    total = float(np.nansum(below))
    if noise is None or total == 0:
        return Quantity(float(value), unit)
    here = scale * float(np.nansum(above)) / total
    relative = float(value) / here if here else 1.0
    return Quantity(float(value), unit, scale * noise.error * abs(relative), noise.freedom)


class _Windows:
    """The time of a trace in at most 400 windows of whole samples."""

    def __init__(self, times: np.ndarray, cadence_s: float) -> None:
        self._size = max(1, -(-len(times) // _MOST_WINDOWS))
        self._begins = np.arange(0, len(times), self._size)
        self._edges = np.append(times[self._begins], times[-1] + cadence_s)
        self.lengths_s = np.diff(self._begins, append=len(times)) * cadence_s

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sums of values [sample] over each window."""
        sums: np.ndarray = np.add.reduceat(values.astype(np.float64), self._begins)
        return sums

    def events(self, times: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the sums of what happened at `times` in each window; what happened outside is left out."""
        known = np.isfinite(values)
        sums, _ = np.histogram(times[known], bins=self._edges, weights=values[known])
        return np.asarray(sums, dtype=np.float64)
