"""What a run reached, as quantities: what baselines are made of and compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import cordee
from cordee.systems.score.result import CLASSES, Caps, Saturation
from cordee.systems.score.trace.model import ScoreTrace

_LARGEST = 1e30
_SPEEDS = ("tokens", "samples", "images", "sequences", "steps", "flops")


@dataclass(frozen=True)
class Quantity:
    """A number of one run."""

    value: float
    unit: str


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
            if not abs(quantity.value) < _LARGEST:
                raise ValueError(f"{name} is no number that can be")
        for name, value in positive.items():
            if not 0 < value < _LARGEST:
                raise ValueError(f"{name} is not above 0")
        for model, caps in self.caps.items():
            if "dram" not in caps or not all(0 < cap < _LARGEST for cap in caps.values()):
                raise ValueError(f"the caps of {model} are no shares")


def observe(trace: ScoreTrace, saturation: Saturation, workload: str = "") -> Observation:
    """Return what a run reached.

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
        quantities=_quantities(trace, saturation),
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


def _quantities(trace: ScoreTrace, saturation: Saturation) -> dict[str, Quantity]:
    shares = saturation.shares
    values = {"score": shares.score, "time": shares.time, "breadth": shares.breadth, "depth": shares.depth}
    found = {
        name: Quantity(float(value), "points" if name == "score" else "ratio")
        for name, value in values.items()
        if value is not None
    }
    return found | _classes(saturation) | _work(trace, saturation)


def _classes(saturation: Saturation) -> dict[str, Quantity]:
    """Return the share of every class that occurs."""
    codes = saturation.windows.classes
    known = int((codes >= 0).sum())
    counts = {name: int((codes == code).sum()) for code, name in enumerate(CLASSES)}
    return {f"class {name}": Quantity(count / known, "ratio") for name, count in counts.items() if count}


def _work(trace: ScoreTrace, saturation: Saturation) -> dict[str, Quantity]:
    """Return power, the speeds that the application logged, and the energy for a unit of its work."""
    found = {}
    watts = trace.load("gpu_power_watts") if trace.kind == "gpu" else None
    known = watts[np.isfinite(watts)] if watts is not None else np.empty(0)
    if len(known):
        found["power"] = Quantity(float(known.mean(dtype=np.float64)), "watts")
    energy = saturation.energy_joules if len(known) else None
    end = trace.times[-1] + trace.cadence_s
    for name in _SPEEDS:
        rate, logged = saturation.rates.get(f"{name}_per_s"), trace.logged.get(name)
        if rate is None or (logged is None and f"{name}_per_s" not in trace.logged):
            continue
        found[f"{name}_per_s"] = Quantity(float(rate), f"{name}/s")
        if logged is not None and energy is not None:
            inside = (logged.times >= trace.times[0]) & (logged.times <= end) & np.isfinite(logged.values)
            done = float(logged.values[inside].sum())
            if done > 0:
                found[_energy_name(name)] = Quantity(energy / done, "joules")
    return found


def _energy_name(work: str) -> str:
    return f"energy_per_{work if work == 'flops' else work.removesuffix('s')}"
