"""The job whose place is asked for: its nodes, its ranks, and where each rank stands in the training's parallelism."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cordee.core.errors import UsageError
from cordee.core.hostlist import expand_nodes
from cordee.core.network import Network
from cordee.core.words import did_you_mean
from cordee.telemetry.store.placement import placement, sizes_of

if TYPE_CHECKING:
    from cordee.runs.state import RunState
    from cordee.telemetry.store.reader import Run

# Experts have a numbering of their own over the ranks that the others number already.
_BESIDE = "ep"
_MESH_FORM = "sizes in the order of the ranks, the fastest first: tp=4,pp=8,dp=84"
_FILTER_FORM = "dp=0,pp=6-7; also rank=0-63, node=n[1-4], switch=NAME, group=NAME"


@dataclass(frozen=True)
class PlacedJob:
    """A job on its nodes.

    Attributes:
        name: in words: `run char-...`, `job 1234`.
        nodes: names, in the job's order.
        ranks: the node of each rank, where that is known.
        places: the index of each rank in each dimension, where it is known.
        sizes: of the dimensions that number the ranks.
    """

    name: str
    nodes: tuple[str, ...]
    ranks: dict[int, str] = field(default_factory=dict)
    places: dict[int, dict[str, int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


def job_of_run(run: Run, state: RunState) -> PlacedJob:
    """Return a run as its journal and its ranks tell it; its newest attempt."""
    told = placement(run)
    ranks = {rank.rank: rank.node for rank in state.ranks}
    if not ranks:
        ranks = {rank: one["node"] for rank, one in told.items() if one["node"]}
    nodes = dict.fromkeys(ranks[rank] for rank in sorted(ranks))
    if not nodes:
        nodes = dict.fromkeys(node.node for node in state.nodes if node.role not in ("excluded", "lost"))
    places = {rank: one["place"] for rank, one in told.items() if one["place"] and rank in ranks}
    return PlacedJob(f"run {run.id}", tuple(nodes), ranks, places, _numbering(sizes_of(told), len(ranks)))


def with_mesh(job: PlacedJob, given: str) -> PlacedJob:
    """Return a job with places by the ranks' numbers, as `tp=4,pp=8,dp=84` says; ranks are dealt to nodes in order.

    Raises:
        UsageError: it is no mesh, or does not fit the job.
    """
    sizes: dict[str, int] = {}
    for part in given.split(","):
        name, _, size = part.strip().partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or not size.isdigit() or not int(size) or name in sizes:
            raise UsageError("this is no mesh", given=given, allowed=_MESH_FORM)
        sizes[name] = int(size)
    world = math.prod(sizes.values())
    ranks = job.ranks
    if not ranks and job.nodes and world % len(job.nodes) == 0:
        per_node = world // len(job.nodes)
        ranks = {rank: job.nodes[rank // per_node] for rank in range(world)}
    if len(ranks) != world:
        allowed = f"sizes that multiply to {len(ranks)}" if ranks else f"a multiple of the {len(job.nodes)} nodes"
        raise UsageError(f"the mesh has {world} ranks", given=given, allowed=allowed)
    places: dict[int, dict[str, int]] = {}
    for at, rank in enumerate(sorted(ranks)):
        places[rank] = {}
        for dimension, count in sizes.items():
            places[rank][dimension], at = at % count, at // count
    return PlacedJob(job.name, job.nodes, ranks, places, sizes)


def chosen(job: PlacedJob, network: Network | None, given: str) -> PlacedJob:
    """Return what a filter leaves of a job: each dimension or name that it names must fit, one named twice by either.

    Raises:
        UsageError: it is no filter, names what the job does not have, or leaves nothing.
    """
    ranks, nodes = dict(job.ranks), list(job.nodes)
    dimensions = dict.fromkeys(name for place in job.places.values() for name in place)
    for name, texts in _conditions(given).items():
        if name == "node":
            wanted = {node for text in texts for node in expand_nodes(text)}
            nodes = [node for node in nodes if node in wanted]
        elif name in _levels(network):
            of = _levels(network)[name]
            leaf_of = network.leaf_of if network is not None else {}
            nodes = [node for node in nodes if of.get(leaf_of.get(node, "")) in texts]
        elif name == "rank" or name in dimensions:
            wanted_numbers = _numbers(texts, given)
            ranks = {
                rank: node
                for rank, node in ranks.items()
                if (rank if name == "rank" else job.places.get(rank, {}).get(name, -1)) in wanted_numbers
            }
        else:
            known = [*dimensions, *(["rank"] if job.ranks else []), "node", *_levels(network)]
            hint = did_you_mean(name, known, "filter by one of these")
            raise UsageError(f"nothing of this job is known by {name}", given=given, allowed=known, next=hint)
    inside = set(nodes)
    ranks = {rank: node for rank, node in ranks.items() if node in inside}
    if job.ranks:
        held = set(ranks.values())
        nodes = [node for node in nodes if node in held]
    if not nodes:
        raise UsageError("the filter leaves nothing of the job", given=given, allowed=_FILTER_FORM)
    places = {rank: job.places[rank] for rank in ranks if rank in job.places}
    return PlacedJob(job.name, tuple(nodes), ranks, places, job.sizes)


def _numbering(sizes: Mapping[str, int], world: int) -> dict[str, int]:
    """Return the dimensions that number the ranks: all but the experts', unless only all of them do."""
    plain = {name: size for name, size in sizes.items() if name != _BESIDE}
    return dict(sizes) if world and math.prod(sizes.values()) == world else plain


def _levels(network: Network | None) -> dict[str, dict[str, str]]:
    return {level.name: level.of for level in network.levels} if network is not None else {}


def _conditions(given: str) -> dict[str, list[str]]:
    """Return the conditions by name; commas within brackets belong to a list of nodes."""
    found: dict[str, list[str]] = {}
    for part in re.split(r",(?![^\[]*\])", given):
        name, equals, text = part.strip().partition("=")
        if not equals or not name or not text.strip():
            raise UsageError("this is no filter", given=given, allowed=_FILTER_FORM)
        found.setdefault(name.strip(), []).append(text.strip())
    return found


def _numbers(texts: Sequence[str], given: str) -> set[int]:
    wanted: set[int] = set()
    for text in texts:
        low, dash, high = text.partition("-")
        if not low.isdigit() or (dash and not (high.isdigit() and int(low) <= int(high) <= int(low) + 10_000_000)):
            raise UsageError("this is no number or range of numbers", given=given, allowed=_FILTER_FORM)
        wanted.update(range(int(low), int(high if dash else low) + 1))
    return wanted
