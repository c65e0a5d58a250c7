"""A plan in words."""

from __future__ import annotations

from collections.abc import Iterator

from cordee.core.units import format_duration, format_size
from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.costs.host_memory import WORKERS, disk_bytes
from cordee.systems.sizing.costs.inference import words_of
from cordee.systems.sizing.layouts import RankedLayout, checkpoint_bytes
from cordee.systems.sizing.parallelism import pipeline_stages
from cordee.systems.sizing.plan import SizedPlan
from cordee.systems.sizing.traced import TracedModel


def lines_of(plan: SizedPlan, *, explain: bool = False) -> Iterator[str]:
    """Yield the lines of a plan as the terminal shows them."""
    model, parts = plan.model, plan.here.parts
    low, high = plan.here.interval
    count = model.parameters if isinstance(model, Architecture) else model.count
    size = f", {count / 1e9:.3g} billion parameters" if count >= 1e9 else f", {count / 1e6:.3g} million parameters"
    yield f"{model.name}{size}, {plan.here.layout.name.replace('1 GPU', 'undivided')}"
    what = "rank" if not plan.workload.on_gpu or (isinstance(model, TracedModel) and not model.gpu) else "GPU"
    said = f"peak {format_size(parts.peak)} of each {what} ({format_size(low)} to {format_size(high)}, {plan.method}), in its {parts.moment}"
    yield said
    for name, value in parts.document().items():
        if value or value is None:
            yield f"  {name:22} {'not known' if value is None else format_size(value):>10}"
            if name == "other" and explain:
                yield from (
                    f"    {inner:20} {format_size(about):>10}" for inner, about in parts.others_document().items()
                )
    if explain and plan.workload.on_gpu:
        yield f"  {format_size(parts.reserved)} of it in PyTorch's allocator (torch.cuda.max_memory_reserved)"
    if isinstance(model, TracedModel) and explain:
        yield from (f"  {format_size(held):>10} in {name or 'no module'}" for name, held in model.modules[:8])
        if model.line:
            yield f"  most of it is made at {model.line}"
    if checkpoint_bytes(model, plan.workload):
        disk = format_size(disk_bytes(model, plan.workload, plan.kept))
        yield f"checkpoint {format_size(checkpoint_bytes(model, plan.workload))}; {disk} of disk with {plan.kept} kept and one being written"
    workers = f", with {WORKERS} workers of a loader for each rank" if plan.workload.trains else ""
    yield f"memory of each node {format_size(sum(plan.host.values()))}{workers}"
    if explain:
        yield from (f"    {name:27} {format_size(value):>10}" for name, value in plan.host.items())
    if plan.device is not None:
        verdict = "fits into" if plan.fits else "does not fit into"
        yield f"{verdict} {plan.device.words()}"
    if plan.nearest():
        yield f"next: {plan.nearest()}"
    for change in plan.changes if explain else ():
        yield f"  {format_size(change.peak):>10} {'fits ' if change.fits else '     '} {change.words}"
    if plan.serving is not None:
        yield from words_of(plan.serving)
    if plan.ranking:
        yield f"layouts on {plan.ranking[0].layout.gpus} x {plan.device.model if plan.device else ''}"
        doing = "a step" if plan.workload.trains else "a forward"
        yield from (_layout_line(one, doing) for one in plan.ranking)
        yield from _stages(plan)
    if plan.goal is not None:
        yield from (plan.goal.words(one, plan.device) for one in plan.ranking[:3] if one.fits)
    if plan.fewest is not None and plan.fewest.layout.gpus != plan.here.layout.gpus:
        yield f"the fewest GPUs: {plan.fewest.layout.gpus} ({plan.fewest.layout.name}, {format_size(plan.fewest.parts.peak)} of each)"


def _short(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else format_duration(seconds)


def _layout_line(one: RankedLayout, doing: str) -> str:
    pace = (
        ""
        if one.time is None
        else f" {_short(one.time.seconds):>8} {doing} {one.time.tokens_per_second:>9,.0f} {one.unit}/s"
    )
    mark = "+" if one.fits else "-"
    return f"  {mark} {one.layout.name:24} {format_size(one.parts.peak):>8}{pace}  {one.reason}"


def _stages(plan: SizedPlan) -> Iterator[str]:
    best, a = plan.ranking[0].layout, plan.model
    if best.pp > 1 and isinstance(a, Architecture):
        counts = [stage.layers for stage in pipeline_stages(a, plan.workload, best)]
        yield f"  layers of each stage: {', '.join(map(str, counts))}"
