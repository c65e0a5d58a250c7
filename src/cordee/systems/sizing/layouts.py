"""Which layouts there are for a model on a number of GPUs, how they do, and why the next one loses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cordee.core.units import format_size
from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.costs.step_time import StepTime, step_time, traced_time
from cordee.systems.sizing.devices import PlannedGpu
from cordee.systems.sizing.measured.calibration import CALIBRATION, calibration_key, known_calibration
from cordee.systems.sizing.memory import MemoryParts, formula_parts, interval_of
from cordee.systems.sizing.parallelism import ALONE, SCHEDULES, Layout, refusal
from cordee.systems.sizing.traced import TracedModel
from cordee.systems.sizing.workload import OPTIMIZERS, Workload

MOST_GPUS = 1024
MOST_SOLVED = 1 << 22
_ALIKE = 0.02  # a difference of speed that no prediction can tell
Model = Architecture | TracedModel


@dataclass(frozen=True)
class RankedLayout:
    """A layout with what it needs and takes; `unit`: what its pace is counted in."""

    layout: Layout
    parts: MemoryParts
    interval: tuple[int, int]
    time: StepTime | None
    fits: bool
    reason: str = ""
    unit: str = "tokens"

    def short(self) -> dict[str, Any]:
        """Return what a picture of layouts shows."""
        pace = None if self.time is None else self.time.tokens_per_second
        return {
            "name": self.layout.name, "peak_bytes": round(self.parts.peak), "pace": pace, "unit": self.unit, "fits": self.fits,
        }  # fmt: skip

    def document(self, device: PlannedGpu | None = None) -> dict[str, Any]:
        """Return it as JSON has it."""
        one, time = self.layout, self.time
        share = None if time is None else time.communication / (1 - time.bubble) / time.seconds
        watts = device.power if device else None
        return {
            "name": one.name,
            **asdict(one),
            "gpus": one.gpus,
            "peak_bytes": round(self.parts.peak),
            "interval_bytes": list(self.interval),
            "step_s": None if time is None else time.seconds,
            "tokens_per_s": None if time is None or self.unit != "tokens" else time.tokens_per_second,
            "samples_per_s": None if time is None or self.unit != "samples" else time.tokens_per_second,
            "mfu": None if time is None or device is None else time.mfu(device),
            "communication_ratio": share,
            "bubble_ratio": None if time is None else time.bubble,
            "energy_joules": None if time is None or watts is None else time.seconds * watts * one.gpus,
            "fits": self.fits,
            "reason": self.reason,
        }


def parts_of(model: Model, workload: Workload, layout: Layout = ALONE) -> MemoryParts:
    """Return the parts of the fullest GPU's peak, by a trace where there is one, as runs that were measured have corrected it."""
    traced = isinstance(model, TracedModel)
    parts = model.parts(workload, layout) if isinstance(model, TracedModel) else formula_parts(model, workload, layout)
    on_gpu = model.gpu if isinstance(model, TracedModel) else workload.on_gpu
    ratio = known_calibration().get(calibration_key(on_gpu=on_gpu, traced=traced), 1.0)
    if ratio == 1.0:
        return parts
    return replace(parts, others={**parts.others, CALIBRATION: (ratio - 1.0) * parts.peak})


def refusal_of(model: Model, workload: Workload, layout: Layout) -> str:
    """Return why a layout cannot be, empty where it can."""
    return model.refusal(layout) if isinstance(model, TracedModel) else refusal(model, workload, layout)


def method_of(model: Model, layout: Layout = ALONE) -> str:
    """Return how the peak was found: `traced`, `formula`, or `mixed`: a trace that formulas divide or extrapolate."""
    if not isinstance(model, TracedModel):
        return "formula"
    return "traced" if layout == ALONE and not model.extrapolated else "mixed"


def examined(model: Model, workload: Workload, layout: Layout, device: PlannedGpu | None) -> RankedLayout:
    """Return one layout with what it needs and takes."""
    parts = parts_of(model, workload, layout)
    hidden = isinstance(model, TracedModel) and model.workspaces
    interval = interval_of(parts.peak, method_of(model, layout), workspaces=hidden)
    time = None
    if device is not None and isinstance(model, TracedModel):
        time = traced_time(model, workload, layout, device)
    elif device is not None and isinstance(model, Architecture):
        time = step_time(model, workload, layout, device)
    tokens = isinstance(model, Architecture) and model.kind != "vision"
    if time is not None and isinstance(model, Architecture) and not tokens:
        time = replace(time, tokens=time.tokens / model.tokens)
    fits = device is None or parts.peak <= device.memory
    return RankedLayout(layout, parts, interval, time, fits, unit="tokens" if tokens else "samples")


def candidates(model: Model, workload: Workload, gpus: int, per_node: int) -> Iterator[Layout]:
    """Yield the layouts that can be on a number of GPUs: TP within a node, CP for long sequences, EP where there are experts."""
    transformer = isinstance(model, Architecture) and model.kind != "count"
    long = transformer and workload.sequence >= 16384
    for tp in _powers(min(per_node, gpus) if transformer else 1):
        for pp in _powers(gpus // tp if transformer and gpus >= 4 and workload.trains else 1):
            for cp in _powers(gpus // tp // pp if long else 1):
                if gpus % (tp * pp * cp):
                    continue
                rest = gpus // (tp * pp * cp)
                for schedule in SCHEDULES if pp > 1 else SCHEDULES[:1]:
                    base = Layout(tp=tp, pp=pp, cp=cp, schedule=schedule)
                    yield from _data_parallel(model, workload, rest, per_node, base)


def _data_parallel(model: Model, workload: Workload, rest: int, per_node: int, base: Layout) -> Iterator[Layout]:
    experts = model.experts if isinstance(model, Architecture) else 0
    for ep in list(_powers(min(rest, experts or 1))):
        found = [replace(base, dp=rest, ep=ep)]
        if rest > 1 and workload.trains:
            found += [replace(base, dp=rest, zero=zero, ep=ep) for zero in (1, 2) if base.pp == 1 or zero == 1]
        if rest > 1 and base.pp == 1:
            found.append(replace(base, fsdp=rest, ep=ep))
            inside = per_node // (base.tp * base.cp)
            if 1 < inside < rest and rest % inside == 0:
                found.append(replace(base, dp=rest // inside, fsdp=inside, ep=ep))
        yield from found


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(max(1, most).bit_length())]


def ranked(model: Model, workload: Workload, device: PlannedGpu, gpus: int) -> list[RankedLayout]:
    """Return all layouts on a number of GPUs, those that fit in front, the fastest first, each with its reason."""
    found = [
        examined(model, workload, layout, device)
        for layout in candidates(model, workload, gpus, device.per_node)
        if not refusal_of(model, workload, layout)
    ]
    found.sort(key=_order)
    alike = [one for one in found if one.fits and _slower(one, found[0]) < _ALIKE]
    if alike:
        found.insert(0, found.pop(found.index(min(alike, key=_kinds))))
    return [replace(one, reason=_reason(one, found[0], device)) for one in found]


def _order(one: RankedLayout) -> tuple[object, ...]:
    pace = one.time.seconds / one.time.tokens if one.time and one.time.tokens else 0.0
    return (not one.fits, one.parts.peak if not one.fits else 0.0, round(pace, 12), _kinds(one), one.parts.peak)


def _kinds(one: RankedLayout) -> int:
    """Return how many kinds of parallelism a layout has: of what is as fast the simpler counts."""
    return sum(size > 1 for size in (one.layout.tp, one.layout.pp, one.layout.cp, one.layout.ep))


def _slower(one: RankedLayout, best: RankedLayout) -> float:
    """Return by how much a layout is slower than another, as a share."""
    if one.time is None or best.time is None:
        return 0.0
    return best.time.tokens_per_second / one.time.tokens_per_second - 1


def _reason(one: RankedLayout, best: RankedLayout, device: PlannedGpu) -> str:
    if not one.fits:
        largest = max({**one.parts.document(), "other": round(one.parts.other)}.items(), key=lambda item: item[1] or 0)
        short = format_size(one.parts.peak - device.memory)
        return f"needs {short} more than {device.words()} has; {largest[0]} take {format_size(largest[1] or 0)}"
    free = f"{format_size(device.memory - one.parts.peak)} are free"
    if one is best:
        return f"the fastest that fits; {free}" if one.time else f"it fits; {free}"
    if one.time is None or best.time is None:
        return f"{free}; nothing is known of its speed"
    slower = _slower(one, best)
    lost = {
        "what nothing hides of its communication": one.time.communication,
        "the bubble of its pipeline": one.time.seconds * one.time.bubble,
        "narrower matrices": one.time.matrices - best.time.matrices,
    }
    cause = max(lost, key=lambda name: lost[name])
    if slower < _ALIKE:
        return f"as fast, and less simple; {free}"
    return f"{slower:.0%} slower, most by {cause}; {free}"


def smallest(model: Model, workload: Workload, device: PlannedGpu) -> RankedLayout | None:
    """Return the fastest layout on the fewest GPUs that the workload fits on; None where it fits on none that there are."""
    gpus = 1
    while gpus <= min(MOST_GPUS, device.most or MOST_GPUS):
        found = ranked(model, workload, device, gpus)
        if found and found[0].fits:
            return found[0]
        gpus *= 2
    return None


@dataclass(frozen=True)
class PlanChange:
    """Something that can be changed, and the peak then."""

    words: str
    peak: float
    fits: bool


def changes(model: Model, workload: Workload, layout: Layout, device: PlannedGpu) -> list[PlanChange]:
    """Return what makes the peak smaller, what costs least first."""
    w = workload
    found: list[tuple[str, Workload, Layout]] = []
    if w.trains and w.optimizer == "adamw":
        found.append(("AdamW with fused=True: no copy in its step", replace(w, optimizer="adamw-fused"), layout))
    if isinstance(model, Architecture) and model.kind != "count" and w.trains:
        if not w.compiled:
            found.append(("torch.compile", replace(w, compiled=True), layout))
        if w.micro_batch > 1:
            steps = w.micro_batch
            words = f"micro-batches of 1 with {steps} steps of accumulation: the same batch"
            found.append((words, replace(w, micro_batch=1, batch=w.micro_batch * layout.replicas), layout))
        if w.precision in ("fp32", "tf32"):
            found.append(("bf16 by autocast", replace(w, precision="bf16"), layout))
        if w.checkpointing != "full":
            words = "checkpointing of activations in every block (a third more computing)"
            found.append((words, replace(w, checkpointing="full"), layout))
            whole = replace(w, checkpointing="full", micro_batch=1, batch=w.micro_batch * layout.replicas)
            found.append(("checkpointing, and micro-batches of 1 with accumulation", whole, layout))
    if isinstance(model, TracedModel) and w.trains and model.batch >= 4 and w.micro_batch == 1:
        half = replace(w, micro_batch=model.batch // 2)
        found.append(("half of its batch, and twice the steps of accumulation: the same batch", half, layout))
    if layout.replicas > 1 and layout.fsdp == 1 and not layout.zero:
        sharded = replace(layout, dp=1, fsdp=layout.dp)
        found.append((f"FSDP2 over the {layout.dp} GPUs that there are", w, sharded))
        if isinstance(model, Architecture) and w.trains:
            full = replace(w, checkpointing="full")
            found.append((f"FSDP2 over the {layout.dp} GPUs, and checkpointing in every block", full, sharded))
    if w.trains and w.task == "train":
        found.append(("8-bit AdamW (bitsandbytes)", replace(w, optimizer="adamw-8bit"), layout))
        found.append(("optimizer states in the host's memory (offload)", replace(w, offload=True), layout))
        if isinstance(model, Architecture) and model.layers:
            lora = replace(w, task="lora", precision="bf16-pure")
            found.append(("LoRA instead of all parameters", lora, layout))
            words = "QLoRA (NF4), and checkpointing in every block"
            found.append((words, replace(lora, task="qlora", checkpointing="full"), layout))
    if not w.trains and w.micro_batch > 1:
        found.append(("one sequence at a time", replace(w, micro_batch=1), layout))
    said = [PlanChange(words, parts_of(model, new, where).peak, False) for words, new, where in found]
    now = parts_of(model, w, layout).peak
    return [replace(one, fits=one.peak <= device.memory) for one in said if one.peak < 0.995 * now]


def solve(what: str, model: Model, workload: Workload, layout: Layout, device: PlannedGpu) -> int:
    """Return the largest `batch` (micro-batch), `sequence` or number of `layers` that fits, or the fewest `gpus`; 0: none does."""
    if what == "gpus":
        found = smallest(model, workload, device)
        return found.layout.gpus if found else 0
    if not isinstance(model, Architecture):
        return _solved_traced(what, model, workload, layout, device)
    makers: dict[str, Callable[[int], tuple[Architecture, Workload]]] = {
        "batch": lambda size: (model, replace(workload, micro_batch=size, batch=None)),
        "sequence": lambda size: (model, replace(workload, sequence=size)),
        "layers": lambda size: (replace(model, layers=size), workload),
    }
    return largest_that(lambda size: parts_of(*makers[what](size), layout).peak <= device.memory)


def _solved_traced(what: str, model: TracedModel, workload: Workload, layout: Layout, device: PlannedGpu) -> int:
    if what != "batch" or not model.batch:
        return 0
    return largest_that(lambda size: parts_of(model, replace(workload, micro_batch=size), layout).peak <= device.memory)


def largest_that(fits: Callable[[int], bool]) -> int:
    """Return the largest whole number that fits, where those above it do not; 0: none does."""
    low, high = 0, 1
    while high <= MOST_SOLVED and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def checkpoint_bytes(model: Model, workload: Workload) -> int:
    """Return what a checkpoint weighs: fp32 parameters and optimizer states; for LoRA its matrices only."""
    if isinstance(model, TracedModel):
        return model.parameters + model.optimizer
    if workload.task in ("lora", "qlora"):
        inner, kv = model.heads * model.head_width, model.kv_heads * model.head_width
        return round(model.layers * workload.rank * (2 * model.width + inner + kv) * 12)
    if not workload.trains:
        return 0
    states = OPTIMIZERS[workload.optimizer].states * workload.state_scale
    return round(model.parameters * (workload.parameter_bytes + states))


def named(ranked_layouts: Sequence[RankedLayout], most: int) -> list[RankedLayout]:
    """Return the best of each kind, the simple kinds before others, and those that come next to fitting, which say what is missing."""
    kinds: dict[tuple[object, ...], RankedLayout] = {}
    for one in ranked_layouts:
        sizes = (one.layout.dp, one.layout.fsdp, one.layout.tp, one.layout.pp, one.layout.cp, one.layout.ep)
        kinds.setdefault((one.fits, one.layout.zero, *(size > 1 for size in sizes)), one)
    simple = sorted((one for one in kinds.values() if one.fits), key=_kinds)[:most]
    fitting = [one for one in kinds.values() if one in simple]
    others = [one for one in kinds.values() if not one.fits][: max(2, most - len(fitting))]
    return [*fitting, *others][: most + 2]
