"""A plan in words."""

from __future__ import annotations

from collections.abc import Iterator

from cordee.core.units import format_duration, format_size
from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.layouts import RankedLayout, checkpoint_bytes, stages
from cordee.systems.sizing.plan import SizedPlan
from cordee.systems.sizing.traced import TracedModel


def lines_of(plan: SizedPlan, *, explain: bool = False) -> Iterator[str]:
    """Yield the lines of a plan as the terminal shows them."""
    model, parts = plan.model, plan.here.parts
    low, high = plan.here.interval
    size = f", {model.parameters / 1e9:.3g} billion parameters" if isinstance(model, Architecture) else ""
    yield f"{model.name}{size}, {plan.here.layout.name.replace('1 GPU', 'undivided')}"
    what = "rank" if isinstance(model, TracedModel) and not model.gpu else "GPU"
    said = f"peak {format_size(parts.peak)} of each {what} ({format_size(low)} to {format_size(high)}, {plan.method}), in its {parts.moment}"
    yield said
    for name, value in parts.document().items():
        if value or value is None:
            yield f"  {name:22} {'not known' if value is None else format_size(value):>10}"
            if name == "other" and explain:
                yield from (
                    f"    {inner:20} {format_size(about):>10}" for inner, about in parts.others_document().items()
                )
    if isinstance(model, TracedModel) and explain:
        yield from (f"  {format_size(held):>10} in {name}" for name, held in model.modules[:8])
        if model.line:
            yield f"  most of it is made at {model.line}"
    if checkpoint_bytes(model, plan.workload):
        yield f"checkpoint {format_size(checkpoint_bytes(model, plan.workload))}"
    if plan.device is not None:
        verdict = "fits into" if plan.fits else "does not fit into"
        yield f"{verdict} {plan.device.words()}"
    if plan.nearest():
        yield f"next: {plan.nearest()}"
    for change in plan.changes if explain else ():
        yield f"  {format_size(change.peak):>10} {'fits ' if change.fits else '     '} {change.words}"
    if plan.ranking:
        yield f"layouts on {plan.ranking[0].layout.gpus} x {plan.device.model if plan.device else ''}"
        yield from (_layout_line(one) for one in plan.ranking)
        yield from _stages(plan)
    if plan.fewest is not None and plan.fewest.layout.gpus != plan.here.layout.gpus:
        yield f"the fewest GPUs: {plan.fewest.layout.gpus} ({plan.fewest.layout.name}, {format_size(plan.fewest.parts.peak)} of each)"


def _layout_line(one: RankedLayout) -> str:
    pace = (
        ""
        if one.time is None
        else f" {format_duration(one.time.seconds):>8} a step {one.time.tokens_per_second:>9,.0f} tokens/s"
    )
    mark = "+" if one.fits else "-"
    return f"  {mark} {one.layout.name:24} {format_size(one.parts.peak):>8}{pace}  {one.reason}"


def _stages(plan: SizedPlan) -> Iterator[str]:
    best, a = plan.ranking[0].layout, plan.model
    if best.pp > 1 and isinstance(a, Architecture):
        counts = stages(a.layers, best.pp, a.embedding, a.head or a.embedding, a.block)
        yield f"  layers of each stage: {', '.join(map(str, counts))}"
