"""From a recording or a run to what is scored: devices, samples on one clock, what was logged; what is missing is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cordee.core.errors import RunNotFound, UsageError
from cordee.systems.score.trace.cores import core_devices, core_loader, given_cores
from cordee.systems.score.trace.jobs import job_of_recording, job_of_run
from cordee.systems.score.trace.logged import read_logged
from cordee.systems.score.trace.model import HostSamples, ScoredDevice, ScoreTrace
from cordee.systems.score.trace.samples import SampleGroup, number, onto, within_range
from cordee.telemetry.node.recording import Recorder, is_recording, read_recorders
from cordee.telemetry.store.reader import Run, open_run

_USE = ("gpu_graphics_ratio", "gpu_utilization_ratio")
Facts = dict[str, dict[str, Any]]


def load(folder: Path | str) -> ScoreTrace:
    """Return what can be scored of a run or a recording.

    Args:
        folder: what `cordee record -o DIR` left, a run's folder or its id.

    Raises:
        UsageError: it is neither, or holds no sample of a GPU or of a rank.
        RunFolderError: it cannot be read.
    """
    run = _opened(folder)
    remarks: list[str] = []
    recorders: list[Recorder] = []
    if is_recording(run.folder):
        recorders, remarks = read_recorders(run.folder)
    groups = run.groups()
    remarks += _jumps(run, groups)
    gpus = _group(run, groups, "gpu", remarks)
    ranks, nodes = _group(run, groups, "rank", remarks), _group(run, groups, "node", remarks)
    facts = {name: run.facts(name) for name in ("gpu", "rank", "node")}
    if gpus is not None:
        if not any(gpus.measured(name) for name in _USE):
            raise _nothing(run, "no GPU said how much it was used", facts["gpu"])
        return _gpu_trace(run, gpus, ranks, nodes, facts, recorders, remarks)
    if ranks is None or not ranks.measured("cpu_cores_ratio"):
        raise _nothing(run, "there is not one sample of a GPU or of a rank in it", facts["rank"])
    return _core_trace(run, ranks, nodes, facts, recorders, remarks)


def _opened(folder: Path | str) -> Run:
    """Return the recording or run of that folder, or the run of that name."""
    try:
        if not str(folder):
            raise RunNotFound("an empty name", given="''")
        return open_run(folder, packed=True)
    except RunNotFound as error:
        if str(folder) and not Path(folder).exists():
            raise
        raise UsageError(
            "this is neither a recording nor a run",
            given=str(folder) or "''",
            allowed="a folder that `cordee record -o DIR` left, a run's folder, or a run's id",
            next="`cordee record -o DIR -- CMD` makes a recording; `cordee score import` makes one of other tools' files",
        ) from error


def _gpu_trace(
    run: Run,
    gpus: SampleGroup,
    ranks: SampleGroup | None,
    nodes: SampleGroup | None,
    facts: dict[str, Facts],
    recorders: list[Recorder],
    remarks: list[str],
) -> ScoreTrace:
    devices = _devices(gpus, facts["gpu"], recorders)
    places = {str(key): at for at, key in enumerate(gpus.devices)}
    order = [places[device.key] for device in devices]
    whole = order == list(range(len(gpus.devices)))

    def load_metric(name: str) -> np.ndarray | None:
        values = gpus.load(name)
        if values is None:
            return None
        chosen = values if whole else values[:, order]
        return within_range(chosen) if name.endswith("_ratio") else chosen

    source = next((gpus.sources[name] for name in _USE if name in gpus and gpus.sources[name]), "gpu")
    return _trace(run, "gpu", source, gpus, devices, load_metric, ranks, nodes, facts, recorders, remarks)


def _core_trace(
    run: Run,
    ranks: SampleGroup,
    nodes: SampleGroup | None,
    facts: dict[str, Facts],
    recorders: list[Recorder],
    remarks: list[str],
) -> ScoreTrace:
    node_of = _nodes_of_ranks(run, ranks, facts["rank"], recorders)
    devices = core_devices(ranks, node_of)
    load_metric = core_loader(ranks, node_of, devices, facts["rank"], recorders)
    source = "perf" if ranks.measured("instructions_per_cycle") else "proc"
    return _trace(run, "cpu", source, ranks, devices, load_metric, ranks, nodes, facts, recorders, remarks)


def _trace(
    run: Run,
    kind: Any,
    source: str,
    clock: SampleGroup,
    devices: list[ScoredDevice],
    load_metric: Callable[[str], np.ndarray | None],
    ranks: SampleGroup | None,
    nodes: SampleGroup | None,
    facts: dict[str, Facts],
    recorders: list[Recorder],
    remarks: list[str],
) -> ScoreTrace:
    """Put what belongs to every trace around the devices."""
    job = job_of_recording(run, recorders, len(devices)) if is_recording(run.folder) else job_of_run(run)
    for of_group in facts.values():
        for about in of_group.values():
            remarks += [remark for remark in about["remarks"] if remark not in remarks]
    for recorder in recorders:
        remarks += [remark for remark in recorder.remarks if remark not in remarks]
    refused = {f"GPU source {name}": reason for recorder in recorders for name, reason in recorder.refused.items()}
    if kind == "cpu" and refused:
        remarks.append(f"no GPU was sampled: {next(iter(refused.values()))}")
    missing = {name: reason for about in facts["gpu"].values() for name, reason in about["missing"].items()}
    for about in (*facts["rank"].values(), *facts["node"].values()):
        missing.update({name: reason for name, reason in about["missing"].items() if name not in missing})
    missing.update(refused)
    logged, loggers = read_logged(run)
    node_of = {} if ranks is None else _nodes_of_ranks(run, ranks, facts["rank"], recorders)
    return ScoreTrace(
        job=job,
        kind=kind,
        source=source,
        cadence_s=clock.cadence_s,
        times=clock.times,
        devices=devices,
        load=load_metric,
        node=_surroundings(nodes, {str(node): str(node) for node in nodes.devices} if nodes else {}, clock),
        rank=_surroundings(ranks, {str(rank): node for rank, node in node_of.items()}, clock),
        missing=missing,
        logged=logged,
        remarks=remarks,
        facts={"logged_ranks": loggers, "rank_cores": given_cores(facts["rank"], recorders), **facts},
    )


def _surroundings(group: SampleGroup | None, node_of: dict[str, str], clock: SampleGroup) -> HostSamples | None:
    if group is None:
        return None

    def load_metric(name: str) -> np.ndarray | None:
        values = group.load(name)
        return None if values is None else onto(values, group.times, group.cadence_s, clock.times, clock.cadence_s)

    return HostSamples(tuple(str(key) for key in group.devices), node_of, load_metric)


def _group(run: Run, groups: list[str], name: str, remarks: list[str]) -> SampleGroup | None:
    """Return the group of that name, of several cadences the one with most samples."""
    found = [SampleGroup(run, group) for group in groups if group == name or group.startswith(f"{name}-")]
    found = [group for group in found if len(group.times)]
    if not found:
        return None
    best = max(found, key=lambda group: len(group.times) * len(group.devices))
    if len(found) > 1:
        others = ", ".join(f"{group.cadence_s:g} s" for group in found if group is not best)
        remarks.append(
            f"samples of group {name} taken every {others} were left out: most are every {best.cadence_s:g} s"
        )
    return best


def _devices(gpus: SampleGroup, facts: Facts, recorders: list[Recorder]) -> list[ScoredDevice]:
    """Return the GPUs in the order of nodes and indices, with what facts and samplers say of them."""
    about: dict[str, tuple[str, dict[str, Any]]] = {}
    owners: dict[str, list[int]] = {}
    for node, of_node in facts.items():
        for device, known in of_node["devices"].items():  # "nodes" of one machine may tell of the same GPU
            about.setdefault(device, (node, known))
            told = known.get("ranks")
            owners.setdefault(device, []).extend(told if isinstance(told, list) else ())
    by_fact = {device for device, ranks in owners.items() if ranks}
    nodes: dict[str, str] = {}
    for recorder in recorders:
        for rank in recorder.ranks:
            for uuid in rank.devices or ():
                nodes[uuid] = recorder.node
                if uuid not in by_fact:
                    owners.setdefault(uuid, []).append(rank.rank)
    alone = recorders[0].node if len(recorders) == 1 else ""
    found = []
    for at, key in enumerate(map(str, gpus.devices)):
        node, known = about.get(key, (nodes.get(key, alone), {}))
        index, share = number(known.get("index")), number(known.get("share"))
        ranks = [number(rank) for rank in owners.get(key, ())]
        found.append(
            ScoredDevice(
                key=key,
                node=node,
                index=at if index is None else int(index),
                model=str(known.get("model") or ""),
                ranks=tuple(sorted({int(rank) for rank in ranks if rank is not None})),
                memory_bytes=number(known.get("memory_bytes")),
                parent=str(known.get("parent") or ""),
                share=share if share is not None and 0 < share <= 1 else 1.0,
                shared=str(known.get("shared") or ""),
            )
        )
    cut_up = {device.parent for device in found if device.parent}
    found = [device for device in found if device.key not in cut_up]  # its instances are scored instead
    return sorted(found, key=lambda device: (_natural(device.node), device.index, device.key))


def _natural(name: str) -> tuple[Any, ...]:
    from cordee.telemetry.store.grids import natural

    return natural(name)


def _nodes_of_ranks(run: Run, ranks: SampleGroup, facts: Facts, recorders: list[Recorder]) -> dict[int, str]:
    """Return the node of each rank that was sampled; a rank of which nobody says it has the only node, or an empty name."""
    known = {rank.rank: recorder.node for recorder in recorders for rank in recorder.ranks}
    if not is_recording(run.folder):
        known.update({rank.rank: rank.node for rank in run.state.ranks})
    known.update({int(rank): node for node, about in facts.items() for rank in about["devices"] if rank.isdigit()})
    nodes = set(known.values()) or {recorder.node for recorder in recorders}
    alone = next(iter(nodes)) if len(nodes) == 1 else ""
    return {int(rank): known.get(int(rank), alone) for rank in ranks.devices}


def _jumps(run: Run, groups: list[str]) -> list[str]:
    """Return a sentence for each node whose clock went back."""
    jumps: dict[str, float] = {}
    for group in groups:
        jumps.update(run.clock_jumps(group))
    return [
        f"the clock of {node} went back by {seconds:.0f} s: of samples that have the same time the later ones are kept"
        for node, seconds in sorted(jumps.items())
    ]


def _nothing(run: Run, text: str, facts: Facts) -> UsageError:
    reasons = [f"{name}: {reason}" for about in facts.values() for name, reason in about["missing"].items()]
    remarks = [remark for about in facts.values() for remark in about["remarks"]]
    return UsageError(
        f"there is nothing to score: {text}",
        given=str(run.folder.root),
        allowed="; ".join([*remarks, *reasons][:4]) or "at least one sample (one is taken every second)",
        next="record for longer: `cordee record -o DIR -- CMD`, then `cordee score DIR`",
    )
