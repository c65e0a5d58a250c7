"""What more data would show, why it is not there, and how to give it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from cordee.core.registry import page_folders
from cordee.faces.web.runs.open_run import Reading
from cordee.runs.children import GRAPH
from cordee.runs.state import RunState


def missing_of(
    reading: Reading, state: RunState, groups: Collection[str], names: Collection[str], placed: bool
) -> list[dict[str, Any]]:
    """Return `{what, why, next}` of what cannot be shown of a run.

    Args:
        groups: those that have samples.
        names: what the ranks logged.
        placed: whether ranks said where they stand in the parallel layout.
    """
    found = []
    begun = bool(state.attempts) or reading.recording
    if not begun and (reading.folder.root / GRAPH).is_file():
        return []  # the runs below it have what there is
    if not begun and not groups:
        waits = "it waits for its nodes" if state.state == "queued" else "no attempt was started"
        return [_missing("samples, logs and metrics", waits, "`cordee advise` says why a run waits or failed")]
    if not groups:
        found.append(_missing("samples", "nothing was sampled: the run is or was too short", None))
    elsewhere = any((reading.folder.root / name).is_dir() for name in page_folders(overview=True))
    if not names and not elsewhere:
        found.append(
            _missing(
                "loss and throughput",
                "the ranks did not log any metric",
                "call cordee.log(step=step, loss=loss, tokens_per_s=rate) in the training loop",
            )
        )
    if groups and "gpu" not in groups:
        found.append(_missing("GPU rows", _no_gpus(reading), "`cordee show RUN` tells what the nodes have"))
    if begun and not placed and (state.world_size or 0) > 1:
        found.append(
            _missing(
                "groups by stage",
                "the ranks did not say where they stand",
                "call cordee.layout(dp=..., tp=..., pp=...) or cordee.layout(device_mesh) once",
            )
        )
    if state.attempts and not reading.recording and state.vetting is None and not any(n.results for n in state.nodes):
        found.append(_missing("vetting", "the nodes were not vetted", "name a protocol in [vet] of cordee.toml"))
    if reading.recording:
        found.append(
            _missing("states and attempts", "this is a recording, which has no supervisor", "`cordee run` keeps them")
        )
    return found


def _missing(what: str, why: str, next_step: str | None) -> dict[str, Any]:
    return {"what": what, "why": why, "next": next_step}


def _no_gpus(reading: Reading) -> str:
    """Return why there are no GPUs in the words of the samplers, where they said it."""
    with reading.run() as run:
        for facts in run.facts("gpu").values():
            reasons = [str(reason) for reason in facts["missing"].values()] + [
                str(remark) for remark in facts["remarks"]
            ]
            if reasons:
                return f"{facts['node']}: {reasons[0]}"
    return "no GPU was seen on the nodes"
