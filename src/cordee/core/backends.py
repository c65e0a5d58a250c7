"""Where runs run: what a back end is, and the table of them, the only place that knows their names.

The built-in ones stand in a table of strings. Others say where theirs is by an entry point of the group `cordee.backends`,
which is looked at for names that the table does not have and for nothing else.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

from cordee.core.errors import SubmitError
from cordee.core.parts import load

HERE = "local"  # the back end, and the cluster, that is meant where nothing is named
BUILT_IN = {
    "local": "cordee.backends.local:BACKEND",
    "slurm": "cordee.backends.slurm:BACKEND",
    "htcondor": "cordee.backends.htcondor:BACKEND",
}
_GROUP = "cordee.backends"


@dataclass(frozen=True)
class Abilities:
    """What the rest of Cordée asks instead of a back end's name.

    Attributes:
        queues: a run may wait for its place, and somebody can be asked about it.
        several_machines: the nodes of a run may be other machines than this one.
        shares_files: the nodes of a run see the files that are seen here. Where they do not, the run travels: what it needs goes
            along, and what it makes comes back.
        chains: a run can come back to its place for a next segment.
        honours: keys of documents that mean something here and not everywhere: `need.partition`, `launch`.
        most_nodes: how many nodes a run may have at most, None: as many as the place has.
        rank_variables: what every rank finds in its environment beside the variables of Cordée.
        prints_to: the file in the run's `submit/` folder that has what a job itself printed, with `{job}` in it.
    """

    queues: bool = False
    several_machines: bool = False
    shares_files: bool = True
    chains: bool = False
    honours: tuple[str, ...] = ()
    most_nodes: Optional[int] = None
    rank_variables: tuple[str, ...] = ()
    prints_to: Optional[str] = None


@dataclass(frozen=True)
class Backend:
    """A way of running runs. Its parts are named as `module:object` and imported when they are first asked for.

    The module that holds this object, `allocation`, `claim` and `rank_environment` are imported on nodes: Python 3.9, standard
    library and the node side of Cordée. A back end that is not among the built-in ones travels to them in the run's
    node.zip.

    Attributes:
        name: as `scheduler` of a cluster's profile has it.
        abilities: what it can do.
        submission: a `Submitter`, which hands runs to the place and asks about them; without arguments.
        allocation: an `Allocation`, which is where the supervisor finds itself; made of the folder and the plan.
        claim: `f(folder, plan, replaces) -> Claim` of an agent that was not told which node it serves; None where it is in no
            job. Without it, agents are told.
        site: `f(environ, most_s) -> values of a profile`, what the place says of itself; raises CordeeError.
        discover: `f(name, environ) -> ProfileDraft`, what `cordee cluster discover` drafts from that; raises CordeeError.
        examine: `f(loaded, plan, placement) -> findings` on a plan before it is submitted.
        facts: `f(folder, job) -> SchedulerFacts` of the run's newest job; None: what `submission` says of it is all.
        reasons: the `Reasons` why its jobs wait and end; None: they are told in the place's own words.
        rank_environment: `f(base, world, rank, cpus_per_rank) -> variables` of a rank that an agent starts.
        scripts: a `ScriptReader`, by which `cordee init` makes documents of its job scripts.
        cluster_variable: the variable in which its jobs find their cluster's name.
        network: `f() -> Network` (`cordee.core.network`), how its nodes are connected; None where it does not know.
        job_nodes: `f(job) -> names` of the nodes of anybody's job, None where there is no such job; both raise CordeeError.
    """

    name: str
    abilities: Abilities
    submission: str
    allocation: str
    claim: Optional[str] = None
    site: Optional[str] = None
    discover: Optional[str] = None
    examine: Optional[str] = None
    facts: Optional[str] = None
    reasons: Optional[str] = None
    rank_environment: Optional[str] = None
    scripts: Optional[str] = None
    cluster_variable: Optional[str] = None
    network: Optional[str] = None
    job_nodes: Optional[str] = None


# What a plan may ask for is left open as long as nobody can say what becomes of it.
_NOBODYS = Abilities(queues=True, several_machines=True)


def known() -> list[str]:
    """Return the names of all back ends, those of others too."""
    return sorted({*BUILT_IN, *_of_others(tuple(sys.path))})


def is_known(name: str) -> bool:
    """Return whether there is a back end of this name; those of others are looked at where the table does not have it."""
    return name in BUILT_IN or name in _of_others(tuple(sys.path))


def backend(name: str) -> Backend:
    """Return a back end by its name.

    Raises:
        SubmitError: there is none of this name, or it cannot be loaded.
    """
    return _loaded(name, BUILT_IN.get(name) or part_of(name))


def part_of(name: str) -> Optional[str]:
    """Return where the back end of others lies that has this name, as `module:object`; None: a built-in one, or none."""
    return None if name in BUILT_IN else _of_others(tuple(sys.path)).get(name)


def backend_on_node(name: str, part: Optional[str]) -> Backend:
    """Return the back end of a plan where its run runs: nodes need not have the packages that a plan was made with.

    Args:
        name: as the plan has it.
        part: where it lies, as the plan has it for a back end of others, which is in the run's node.zip.

    Raises:
        SubmitError: there is none of this name, or it cannot be loaded.
    """
    return _loaded(name, BUILT_IN.get(name) or part)


def abilities(name: str) -> Abilities:
    """Return what a back end can do; of an unknown one that it is a scheduler somewhere."""
    try:
        return backend(name).abilities
    except SubmitError:
        return _NOBODYS


@lru_cache(maxsize=None)
def _of_others(path: tuple[str, ...]) -> dict[str, str]:
    from importlib.metadata import entry_points

    points: Any = entry_points()
    chosen = points.select(group=_GROUP) if hasattr(points, "select") else points.get(_GROUP, ())
    return {point.name: point.value for point in chosen}


@lru_cache(maxsize=None)
def _loaded(name: str, part: Optional[str]) -> Backend:
    if part is None:
        raise SubmitError(
            f"this version cannot submit to {name!r}",
            given=name,
            allowed=known(),
            next=f"choose a cluster whose profile has one of these schedulers, or `--on {HERE}`",
        )
    try:
        found = load(part)
    except Exception as error:  # a package of somebody else may raise anything
        raise SubmitError(
            f"the back end {name} cannot be loaded: {error.__cause__ or error}",
            given=part,
            next="mend or remove the package that has it",
        ) from error
    if not isinstance(found, Backend) or found.name != name:
        raise SubmitError(
            f"this is not the back end {name}", given=part, allowed=f'a cordee.backends.Backend with name = "{name}"'
        )
    return found
