"""What a back end is: one object that says what it can do, and where its parts lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Abilities:
    """What the rest of Cordée asks instead of a back end's name.

    Attributes:
        queues: a run may wait for its place, and somebody can be asked about it.
        several_machines: the nodes of a run may be other machines than this one.
        chains: a run can come back to its place for a next segment.
        honours: keys of documents that mean something here and not everywhere: `need.partition`, `launch`.
        most_nodes: how many nodes a run may have at most, None: as many as the place has.
        rank_variables: what every rank finds in its environment beside the variables of Cordée.
        prints_to: the file in the run's `submit/` folder that has what a job itself printed, with `{job}` in it.
    """

    queues: bool = False
    several_machines: bool = False
    chains: bool = False
    honours: tuple[str, ...] = ()
    most_nodes: Optional[int] = None
    rank_variables: tuple[str, ...] = ()
    prints_to: Optional[str] = None


@dataclass(frozen=True)
class Backend:
    """A way of running runs. Its parts are named as `module:object` and imported when they are first asked for.

    The module that holds this object, `allocation` and `rank_environment` are imported on nodes: Python 3.9, standard
    library and the node side of Cordée. A back end that is not among the built-in ones travels to them in the run's
    node.zip.

    Attributes:
        name: as `scheduler` of a cluster's profile has it.
        abilities: what it can do.
        submission: a `Submitter`, which hands runs to the place and asks about them; without arguments.
        allocation: an `Allocation`, which is where the supervisor finds itself; made of the folder and the plan.
        site: `f(environ, most_s) -> values of a profile`, what the place says of itself; raises CordeeError.
        examine: `f(loaded, plan, placement) -> findings` on a plan before it is submitted.
        facts: `f(folder, job) -> SchedulerFacts` of the run's newest job; None: what `submission` says of it is all.
        reasons: the `Reasons` why its jobs wait and end; None: they are told in the place's own words.
        rank_environment: `f(base, world, rank, cpus_per_rank) -> variables` of a rank that an agent starts.
        cluster_variable: the variable in which its jobs find their cluster's name.
        network: `f() -> Network` (`cordee.backends.node.network`), how its nodes are connected; None where it does not know.
        job_nodes: `f(job) -> names` of the nodes of anybody's job, None where there is no such job; both raise CordeeError.
    """

    name: str
    abilities: Abilities
    submission: str
    allocation: str
    site: Optional[str] = None
    examine: Optional[str] = None
    facts: Optional[str] = None
    reasons: Optional[str] = None
    rank_environment: Optional[str] = None
    cluster_variable: Optional[str] = None
    network: Optional[str] = None
    job_nodes: Optional[str] = None
