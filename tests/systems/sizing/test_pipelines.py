"""What a stage of a pipeline keeps and how long it stands, against PyTorch's own schedules, played through."""

from __future__ import annotations

from typing import Any

import pytest
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.stage import _PipelineStageBase

from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.costs.step_time import step_time
from cordee.systems.sizing.devices import device_of
from cordee.systems.sizing.layouts import ranked
from cordee.systems.sizing.memory import formula_parts
from cordee.systems.sizing.parallelism import Layout, bubble_seconds, pipeline_stages, refusal
from cordee.systems.sizing.workload import Workload

MODEL = Architecture(
    "model", layers=32, width=4096, heads=32, kv_heads=32, head_width=128, ffn=11008, vocabulary=32000, gated=True
)


class Seat(_PipelineStageBase):
    """A stage that computes nothing, for whoever only orders stages."""

    def __init__(self, pp: int, stages: int) -> None:
        self.group_size, self.num_stages, self.group_rank, self.group, self.submod = pp, stages, 0, None, None

    def _prepare_forward_infra(self, *args: Any, **kwargs: Any) -> Any: ...

    def _prepare_backward_infra(self, *args: Any, **kwargs: Any) -> Any: ...

    def _create_grad_recv_info(self, *args: Any, **kwargs: Any) -> Any: ...


def played(kind: Any, pp: int, parts: int, count: int) -> tuple[float, list[float]]:
    """Return how long the fullest rank stands, in forwards of a whole stage, and how many micro-batches each rank keeps at most.

    A forward takes a unit of time, both halves of backward as much.
    """
    order = kind([Seat(pp, pp * parts) for _ in range(parts)], count).pipeline_order
    queues = {
        rank: [one for one in actions if one is not None and one.microbatch_index is not None]
        for rank, actions in order.items()
    }
    done: dict[tuple[str, int, int], float] = {}
    clock, most = dict.fromkeys(queues, 0.0), []
    last = pp * parts - 1

    def ready(action: Any) -> float | None:
        stage, micro, what = action.stage_index, action.microbatch_index, action.computation_type.name
        if what == "FORWARD":
            return 0.0 if stage == 0 else done.get(("F", stage - 1, micro))
        if what == "BACKWARD_WEIGHT":
            return done.get(("B", stage, micro))
        return done.get(("F", stage, micro) if stage == last else ("B", stage + 1, micro))

    left = {rank: list(queue) for rank, queue in queues.items()}
    while any(left.values()):
        moved = False
        for rank, queue in left.items():
            while queue and (when := ready(queue[0])) is not None:
                action = queue.pop(0)
                what = action.computation_type.name
                clock[rank] = max(clock[rank], when) + (2 if what == "FULL_BACKWARD" else 1) / parts
                kind_of = {"FORWARD": "F", "BACKWARD_WEIGHT": "W"}.get(what, "B")
                done[kind_of, action.stage_index, action.microbatch_index] = clock[rank]
                moved = True
        assert moved, "the schedule waits for itself"
    for queue in queues.values():
        held = peak = 0
        for action in queue:
            held += {"FORWARD": 1, "FULL_BACKWARD": -1, "BACKWARD_WEIGHT": -1}.get(action.computation_type.name, 0)
            peak = max(peak, held)
        most.append(peak / parts)
    return max(clock.values()) - 3.0 * count, most


@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        (schedules.ScheduleInterleavedZeroBubble, Layout(pp=4, schedule="zb-h1")),
        (schedules.ScheduleInterleaved1F1B, Layout(pp=4, interleaved=2)),
        (schedules.ScheduleZBVZeroBubble, Layout(pp=4, schedule="zb-v")),
    ],
)
def test_stages_keep_and_stand_as_in_pytorchs_schedules(kind, layout):
    count = 16
    stands, most = played(kind, layout.pp, layout.parts, count)
    kept = [stage.inside for stage in pipeline_stages(MODEL, Workload(batch=count), layout)]
    assert most == pytest.approx(kept, abs=0.51)
    assert max(most) <= max(kept)
    assert stands == pytest.approx(bubble_seconds(layout, count, 3.0 * count, 1.0 * count), abs=1.01)


def test_a_zero_bubble_pipeline_is_faster_with_the_memory_of_1f1b():
    work, device = Workload(batch=64), device_of("h100")
    plain, h1, v = (Layout(pp=8, schedule=name) for name in ("1f1b", "zb-h1", "zb-v"))
    times = [step_time(MODEL, work, layout, device) for layout in (plain, h1, v)]
    assert times[0].bubble > 1.5 * times[1].bubble > times[2].bubble >= 0
    peaks = [formula_parts(MODEL, work, layout).peak for layout in (plain, h1, v)]
    assert peaks[1] == pytest.approx(peaks[0], rel=0.15)
    assert peaks[2] == pytest.approx(peaks[0], rel=0.15)
    assert any("ZB-" in one.layout.name for one in ranked(MODEL, work, device, 8))


def test_the_embedding_and_the_logits_lie_on_their_stages_and_fewer_micro_batches_keep_less():
    few, many = (formula_parts(MODEL, Workload(batch=count), Layout(pp=8)) for count in (2, 64))
    assert few.activations < 0.5 * many.activations
    assert not many.logits  # the first stage is the fullest


@pytest.mark.parametrize(
    ("layout", "work", "why"),
    [
        (Layout(schedule="zb-v"), Workload(), "pipelines"),
        (Layout(pp=2, schedule="zb-h1", interleaved=2), Workload(), "parts of its own"),
        (Layout(pp=2, schedule="zb-h1"), Workload(checkpointing="full"), "checkpointing"),
        (Layout(pp=32, schedule="zb-v"), Workload(), "2 parts"),
    ],
)
def test_zero_bubble_schedules_that_cannot_be_say_why(layout, work, why):
    assert why in refusal(MODEL, work, layout)
