"""The view of a job's place, as data, as lines and as a picture: what the command, the page and the report show."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cordee.backends.cluster_here import cluster_here
from cordee.backends.network.sources import MissingTopology, find_network
from cordee.core.errors import RunFolderError
from cordee.core.network import Network
from cordee.systems.explain.topology.colours import colours
from cordee.systems.explain.topology.figures import Edges, Figures, LevelSpan, document, figures
from cordee.systems.explain.topology.job import PlacedJob, chosen, job_of_run, with_mesh
from cordee.systems.explain.topology.picture import picture

if TYPE_CHECKING:
    from cordee.runs.state import RunState
    from cordee.telemetry.store.reader import Run

SCHEMA = "cordee.topology/1"
_PLACE = "cordee.layout(tp=(tp_rank, tp_size), pp=(pp_rank, pp_size), dp=(dp_rank, dp_size))"
_SHOWN = 5


@dataclass(frozen=True)
class View:
    """Where a job sits.

    Attributes:
        whole: the job; `part`: what the filter leaves of it.
        figures: of that part.
        missing: data that is not there, with the line that would bring it.
    """

    whole: PlacedJob
    part: PlacedJob
    network: Network | None
    figures: Figures
    missing: tuple[MissingTopology, ...]
    filtered: str = ""
    run: Run | None = None
    state: RunState | None = None

    def document(self) -> dict[str, Any]:
        """Return the view as JSON."""
        return {
            "schema": SCHEMA,
            **document(self.part, self.network, self.figures),
            "filter": self.filtered or None,
            "missing": [missing._asdict() for missing in self.missing],
        }

    def svg(self, colour: str | None = None) -> str:
        """Return the picture, coloured by a dimension, `state`, `job` or a metric.

        Raises:
            UsageError: nothing of the job has this name.
        """
        found = figures(self.whole, self.network) if self.filtered else self.figures
        shades = colours(colour, self.whole, self.run, self.state)
        return picture(self.whole, self.part, self.network, found, shades)

    def lines(self) -> Iterator[str]:
        """Yield the view as text, with what is missing of it."""
        yield from self.told()
        for missing in self.missing:
            yield f"missing: {missing.what}; add to {missing.where}:"
            yield from (f"    {line}" if line else "" for line in missing.line.splitlines())

    def told(self) -> Iterator[str]:
        """Yield the job, the network and the figures as text."""
        part, found = self.part, self.figures
        mesh = " x ".join(f"{name} {size}" for name, size in part.sizes.items() if size > 1) if part.places else ""
        ranks = f", {len(part.ranks)} ranks" if part.ranks else ""
        yield f"{part.name}: {_count(len(part.nodes), 'node')}{ranks}{f' ({mesh})' if mesh else ''}"
        if self.filtered:
            yield f"only {self.filtered}: {len(part.nodes)} of {len(self.whole.nodes)} nodes"
        if self.network is not None:
            yield f"network: {self.network.kind}, {_count(len(self.network.leaves), _leaf(self.network))}, by {self.network.source}"
        for span in found.spans:
            yield f"  {_span(span)}"
        if found.mean_hops is not None:
            share = "" if found.known_pairs == 1 else f", of the {found.known_pairs:.0%} of pairs whose way is known"
            longest = f"{found.most_hops} at most"
            yield f"  switches between two nodes: {found.mean_hops:.2f} on average, {longest}{share}"
        if found.edges:
            yield from _table(found.edges)
        for fault in self.network.faults if self.network is not None else ():
            yield f"warn: {fault}"


def view_of_run(
    run: Run,
    *,
    cluster: str | None = None,
    file: Path | None = None,
    mesh: str | None = None,
    filtered: str = "",
    environ: Mapping[str, str] = os.environ,
) -> View:
    """Return where a run sits; `cluster` is the plan's unless it is given. Other arguments and errors as `view_of_job`."""
    state = run.state
    where = cluster
    with suppress(RunFolderError):  # a recording has no plan
        planned = run.plan.get("cluster") if isinstance(run.plan, dict) else None
        where = where or (planned if isinstance(planned, str) else None)
    return view_of_job(
        job_of_run(run, state),
        where or cluster_here(None, environ),
        file,
        mesh,
        filtered,
        environ,
        run=run,
        state=state,
    )


def view_of_job(
    job: PlacedJob,
    cluster: str,
    file: Path | None = None,
    mesh: str | None = None,
    filtered: str = "",
    environ: Mapping[str, str] = os.environ,
    *,
    run: Run | None = None,
    state: RunState | None = None,
) -> View:
    """Return where a job sits.

    Args:
        cluster: whose profile or scheduler is asked for the network.
        file: describes the network instead.
        mesh: gives ranks their coordinates: `tp=4,pp=8,dp=84`.
        filtered: leaves some of it: `dp=0,pp=6-7`.
        environ: where profiles are looked for.
        run, state: of a run: what its colours are taken from.

    Raises:
        NetworkError, DocumentError, UsageError: the description of the network, the profile, the mesh or the filter is wrong.
    """
    whole = with_mesh(job, mesh) if mesh else job
    network, not_there = find_network(cluster, file, environ)
    part = chosen(whole, network, filtered) if filtered else whole
    found = figures(part, network)
    missing = tuple(filter(None, (not_there, _without_places(whole), _without_switch(found, network))))
    return View(whole, part, network, found, missing, filtered, run, state)


def _without_places(job: PlacedJob) -> MissingTopology | None:
    if job.places and len(job.places) == len(job.ranks):
        return None
    if job.ranks:
        absent = len(job.ranks) - len(job.places)
        what = f"where {absent} of {len(job.ranks)} ranks stand in the training's parallelism"
        return MissingTopology(what, _PLACE, "train.py, once its groups are made")
    what = "its ranks, and where they stand in the training's parallelism"
    return MissingTopology(what, "--mesh tp=4,pp=8,dp=84", "the command, with the sizes of this job, the fastest first")


def _without_switch(found: Figures, network: Network | None) -> MissingTopology | None:
    if network is None or not found.unplaced:
        return None
    names = ", ".join(found.unplaced[:_SHOWN]) + (" and more" if len(found.unplaced) > _SHOWN else "")
    what = f"the switch of {_count(len(found.unplaced), 'node')}: {names}"
    if network.kind == "fabric":
        guid = f'0x0002c90300a1b2c3 "{found.unplaced[0]} mlx5_0"'
        return MissingTopology(
            what, guid, "a file for ibnetdiscover --node-name-map: a description begins with the node's name"
        )
    keyword = "BlockName=NAME" if network.kind == "block" else "SwitchName=NAME"
    if network.source.startswith("[switches]"):
        return MissingTopology(what, f'NAME = "{found.unplaced[0]}"', network.source)
    return MissingTopology(what, f"{keyword} Nodes={found.unplaced[0]}", network.source)


def _leaf(network: Network) -> str:
    return "block" if network.kind == "block" else "leaf switch"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('ch') else 's'}"


def _span(span: LevelSpan) -> str:
    name, nodes = span.largest
    apart = f"; {span.partly} shared with others" if span.partly else ""
    alone = f"; {span.lone} with one node each" if span.lone else ""
    least = f"{span.least_possible} {'is' if span.least_possible == 1 else 'are'} the least possible"
    spans = f"spans {_count(span.spanned, span.level)} of {span.there}, {least}"
    return f"{spans}; most nodes in {name}: {nodes}{apart}{alone}"


def _table(edges: Mapping[str, Edges]) -> Iterator[str]:
    levels = list(next(iter(edges.values())).crossing)
    yield "  neighbours that cross" + "".join(f"{name:>10}" for name in ("pairs", "node", *levels))
    for name, one in edges.items():
        known = one.pairs - one.unknown
        shares = [_percent(one.nodes, one.pairs), *(_percent(one.crossing[level], known) for level in levels)]
        yield f"    {name:<19}{one.pairs:>10}" + "".join(f"{share:>10}" for share in shares)


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.1f} %" if of else "unknown"
