"""The systems: what each adds to the platform, and where. A system's code is imported by whoever opens that door.

A system is one folder with one object that names its doors, `SYSTEM` in its `system.py`. The built-in ones stand in a table;
others come by entry points of the group `cordee.systems`, which are read only where a name is met that nobody here knows, and
where a report or a server asks all systems.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.core.parts import load

GROUP = "cordee.systems"
# In the order in which they are asked.
BUILT_IN: dict[str, str] = {
    "data": "cordee.systems.data.system:SYSTEM",
    "environments": "cordee.systems.environments.system:SYSTEM",
    "vetting": "cordee.systems.vetting.system:SYSTEM",
    "checkpoints": "cordee.systems.checkpoints.system:SYSTEM",
    "score": "cordee.systems.score.system:SYSTEM",
    "explain": "cordee.systems.explain.system:SYSTEM",
    "scan": "cordee.systems.scan.system:SYSTEM",
    "rules": "cordee.systems.rules.system:SYSTEM",
    "egress": "cordee.systems.egress.system:SYSTEM",
    "misuse": "cordee.systems.misuse.system:SYSTEM",
    "sizing": "cordee.systems.sizing.system:SYSTEM",
    "services": "cordee.systems.services.system:SYSTEM",
    "inference": "cordee.systems.inference.system:SYSTEM",
    "trials": "cordee.systems.trials.system:SYSTEM",
    "steps": "cordee.systems.steps.system:SYSTEM",
    "notices": "cordee.systems.notices.system:SYSTEM",
    "sizes": "cordee.systems.sizes.system:SYSTEM",
    "repro": "cordee.systems.repro.system:SYSTEM",
    "builds": "cordee.systems.builds.system:SYSTEM",
}


class Page(NamedTuple):
    """A page of the web server.

    Attributes:
        pattern: its address: parts that begin with ":" are handed to the page; below `run/:run` it stands in a run's frame.
        file: of `static` in the system's folder, a JavaScript module whose default export is the page's component.
        title: in words.
        tab: whether it is among the tabs of a run, or, where it is of no run, among the links of every page.
        folder: of the run's folder, without which a run has no such tab; empty: every run has it.
        overview: whether its file's export `Overview` stands on the overview of runs that have the folder, in place of what
            their ranks log.
    """

    pattern: str
    file: str
    title: str
    tab: bool = False
    folder: str = ""
    overview: bool = False


class System(NamedTuple):
    """The doors of one system; each is a text `module:object`, and what is empty the system has not.

    Attributes:
        name: of the system.
        tables: of the job document that are its own, with the model of each where the document has none for it yet.
        always: whether it is asked about every job, not only about those that set one of its tables.
        read: `read(job, folder, profile, merge)`: reads with the document what its tables name; returns that and findings.
        auto: `auto(loaded, runs)` returns what of `[need]` stands in the place of `auto`, by name, and findings.
        examine: an `Examination` (`cordee.job.plan.examination`): its part of the plan, and findings.
        children: `children(loaded)` returns `ChildJobs` (`cordee.job.plan.children`): runs below the job's own; None: none.
        keep: `keep(folder, loaded, plan)`: writes what it keeps in a new run's folder; returns the paths that are no code.
        node_parts: what it fills ports of the node side with, by the port's name.
        commands: of `cordee`, by their names, where the command line has none of that name.
        subcommands: by `GROUP NAME`, such as `env build`, the module whose `command` it is, and one line of help.
        offers: what it offers other systems, by the name of the port in `cordee.core.ports`.
        views: a `RunView` (`cordee.telemetry.shown.view`): what it says of a run wherever runs are told.
        report: a tuple of `Section`s (`cordee.telemetry.shown.section`): what it says in a run's report.
        arrivals: `arrivals(path, cluster)` returns findings about an image that has just been pulled or packed.
        data_sets: `data_sets()` returns what it leaves, as `KeptData` (`cordee.telemetry.shown.kept_data`).
        routes: an APIRouter of the web server, which it knows as `Serving` (`cordee.telemetry.shown.server_parts`).
        pages: of the web server.
        package: of a system that is not built in: its top-level package, which is its folder; `__init__` and `node` travel to the nodes.
    """

    name: str
    tables: Mapping[str, str] = {}
    always: bool = False
    read: str = ""
    auto: str = ""
    examine: str = ""
    children: str = ""
    keep: str = ""
    node_parts: Mapping[str, str] = {}
    commands: Mapping[str, str] = {}
    subcommands: Mapping[str, tuple[str, str]] = {}
    offers: Mapping[str, str] = {}
    views: str = ""
    report: str = ""
    arrivals: str = ""
    data_sets: str = ""
    routes: str = ""
    pages: tuple[Page, ...] = ()
    package: str = ""


@cache
def built_in() -> tuple[System, ...]:
    """Return the built-in systems, in the order in which they are asked."""
    return tuple(load(part) for part in BUILT_IN.values())


@cache
def outsiders() -> tuple[System, ...]:
    """Return the systems of other packages, by name.

    Raises:
        CordeeError: one of them cannot be loaded, or has the name of another.
    """
    from importlib.metadata import entry_points

    found: dict[str, System] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        if point.name in BUILT_IN or point.name in found:
            raise CordeeError("two systems have one name", given=point.value, next="remove one of the packages")
        system = load(point.value)
        if not isinstance(system, System) or system.name != point.name:
            raise CordeeError(
                f"the entry point {point.name} of {GROUP} is not the system of that name",
                given=point.value,
                allowed=f"a System whose name is {point.name}",
            )
        found[point.name] = system
    return tuple(found.values())


def all_systems() -> tuple[System, ...]:
    """Return the built-in systems, and those of other packages behind them."""
    return (*built_in(), *outsiders())


@cache
def page_folders(*, overview: bool = False) -> tuple[str, ...]:
    """Return the folders of a run's folder that pages of systems ask for; with `overview` of those that stand on the overview.

    Raises:
        CordeeError: a system of another package cannot be loaded.
    """
    return tuple(
        dict.fromkeys(
            page.folder
            for system in all_systems()
            for page in system.pages
            if page.folder and page.overview >= overview
        )
    )


def telling(names: Collection[str]) -> tuple[System, ...]:
    """Return the built-in systems, and those of other packages that have one of these names."""
    return (*built_in(), *(system for system in outsiders() if system.name in names)) if names else built_in()


def node_parts(systems: Iterable[System]) -> dict[str, str]:
    """Return what systems fill the ports of the node side with, as a plan freezes it."""
    return {port: part for system in systems for port, part in system.node_parts.items()}


def with_table(key: str) -> System | None:
    """Return the system of another package that has this table of the job document, None where there is none."""
    return next((system for system in outsiders() if key in system.tables), None)


def command(name: str) -> str | None:
    """Return the command of another package's system that has this name, None where there is none."""
    return next((system.commands[name] for system in outsiders() if name in system.commands), None)


def subcommands(group: str) -> dict[str, tuple[str, str]]:
    """Return what built-in systems add to a group of commands: by name, a module and one line of help."""
    return {
        name.partition(" ")[2]: given
        for system in built_in()
        for name, given in system.subcommands.items()
        if name.partition(" ")[0] == group
    }


def offered(port: str) -> Any | None:
    """Return what fills a port between systems, None where no system offers it."""
    return next((load(system.offers[port]) for system in built_in() if port in system.offers), None)


def said_of_image(path: str, cluster: str) -> list[Finding]:
    """Return what systems say of an image that has just been made: advisories, secrets, rights.

    Args:
        path: of the image.
        cluster: whose profile says what is refused.
    """
    return [finding for system in built_in() if system.arrivals for finding in load(system.arrivals)(path, cluster)]


def about(job: object, others: tuple[System, ...] = ()) -> tuple[System, ...]:
    """Return the systems that a job is about: those that are always asked, and those whose tables it sets.

    Args:
        job: the model of the document.
        others: systems of other packages whose tables it has.
    """
    return tuple(
        system
        for system in (*built_in(), *others)
        if system.always or any(getattr(job, key, None) for key in system.tables)
    )
