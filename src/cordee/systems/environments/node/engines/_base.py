"""The seam of engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, NamedTuple, Optional, Sequence

from cordee.core.errors import EXIT_INTERNAL, CordeeError
from cordee.systems.environments.node.document import Environment

CONTAINER_SCHEMA = "cordee.container/1"
# What `env run` returns when the engine, not the command, failed.
EXIT_ENGINE = 125


class EngineError(CordeeError):
    """An environment cannot be entered."""

    kind = "environment"
    exit_code = EXIT_INTERNAL


class MissingCapability(NamedTuple):
    """A capability of the machine that an environment needs and that is not there.

    Attributes:
        capability: a word for it: `user-namespaces`, `fuse`, `squashfuse`, `podman`, `driver-libraries`, ...
        text: what is missing, for a person.
        next: what to do about it, another engine included.
        given: what asks for it, as it stands in the environment; None: all of it does.
    """

    capability: str
    text: str
    next: str
    given: Optional[str] = None


@dataclass(frozen=True)
class EngineLaunch:
    """One command in an environment.

    Attributes:
        argv: the command; empty: the image's own.
        env: its whole environment, as `Environment.variables` gives it.
        workdir: where it begins; None: as the environment says.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    workdir: Optional[str] = None


class Engine:
    """Runs commands in environments. Called by `cordee env run`, by agents and by the SPANK plugin; nothing is started
    by these methods themselves, so that they can be called anywhere and compared with what was expected.

    An engine is given environments whose `root` is known. It raises EngineError for what it cannot honour, by name.
    """

    name = ""

    def missing(self, environment: Environment) -> list[MissingCapability]:
        """Return what this machine lacks to run the environment; empty: it can."""
        raise NotImplementedError("an engine knows what it needs")

    def argv(self, environment: Environment, launch: EngineLaunch) -> list[str]:
        """Return the command line that runs one command in a container of its own, and ends with its exit code.

        The caller executes it with `launch.env` as its environment. It forwards signals, leaves nothing mounted and
        nothing running however it ends, and returns EXIT_ENGINE with words on standard error when it fails itself.
        """
        raise NotImplementedError("an engine runs commands")

    def hold(self, environment: Environment) -> list[str]:
        """Return the command line of a process that keeps one container open for many commands.

        It prints one JSON line when the container is up, `{"schema": "cordee.container/1", "enter": [argv...]}`: those
        words before a command (and `--workdir PATH` in front of `--`, as `enter_argv` puts it) run it inside, in the
        environment that it is started with, as the same process or as a parent that forwards signals and the exit code.
        The commands share the host's process ids. When the container cannot be had it prints
        `{"schema": ..., "error": {...}}` and exits with EXIT_ENGINE. It ends, and the container with it, when its
        standard input is closed or it is killed by any signal.
        """
        raise NotImplementedError("an engine holds containers")


def enter_argv(enter: Sequence[str], argv: Sequence[str], workdir: str) -> list[str]:
    """Return the command line that runs `argv` in a container that is held, beginning in `workdir`."""
    return [*enter, "--workdir", workdir, "--", *argv]
