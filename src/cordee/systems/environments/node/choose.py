"""Which engine runs an environment on this machine."""

from __future__ import annotations

from typing import NamedTuple, Optional

from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines import ENGINES, find_engine
from cordee.systems.environments.node.engines._base import Engine, EngineError, MissingCapability

# The quickest first, and the one that needs nothing to be installed.
PREFERENCE = ("namespace", "podman", "apptainer")
# Of a site whose engine is an option of srun; see `engines.step`.
STEP = "step"


class EngineChoice(NamedTuple):
    """An engine that can run an environment here.

    Attributes:
        engine: the engine.
        passed_over: those that would have gone before it, and what each lacks.
    """

    engine: Engine
    passed_over: tuple[tuple[str, tuple[MissingCapability, ...]], ...] = ()


def choose_engine(environment: Environment, name: Optional[str] = None) -> EngineChoice:
    """Return the engine to use: the one of that name, else the first of PREFERENCE that this machine can run.

    Args:
        environment: with its root.
        name: as a person or a profile gave it; it is used or refused, never replaced.

    Raises:
        EngineError: there is no such engine, or the machine lacks what it needs; the text names all that is missing.
    """
    if name == STEP:
        raise EngineError(
            "this site enters environments by an option of srun, not by an engine on the node",
            given=name,
            next="give srun the option and leave `cordee env run` out, or take --engine namespace",
        )
    if name:
        engine = find_engine(name)
        missing = engine.missing(environment)
        if missing:
            raise _lacking(((name, tuple(missing)),), asked=name)
        return EngineChoice(engine)
    passed_over: list[tuple[str, tuple[MissingCapability, ...]]] = []
    for candidate in PREFERENCE:
        if candidate in ENGINES:
            engine = find_engine(candidate)
            missing = engine.missing(environment)
            if not missing:
                return EngineChoice(engine, tuple(passed_over))
            passed_over.append((candidate, tuple(missing)))
    raise _lacking(tuple(passed_over))


def said(passed_over: tuple[tuple[str, tuple[MissingCapability, ...]], ...]) -> list[str]:
    """Return one line for each capability that engines lack: `podman: podman is not on PATH`."""
    return [f"{name}: {each.text}" for name, missing in passed_over for each in missing]


def _lacking(passed_over: tuple[tuple[str, tuple[MissingCapability, ...]], ...], asked: str = "") -> EngineError:
    lines = said(passed_over)
    hints = list(dict.fromkeys(each.next for _, missing in passed_over for each in missing if each.next))
    what = (
        f"the engine {asked} cannot run this environment here" if asked else "no engine can run this environment here"
    )
    return EngineError("; ".join([what, *lines]), given=asked or None, next="; or ".join(hints) or None)
