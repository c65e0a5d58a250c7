"""The seam of checks."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any, Optional, Union

STATUSES = ("pass", "warn", "fail", "unknown", "skip")
# Why something could not be tested. closed: the site does not let us look (no permission, no such interface).
# absent: what should be tested, or what tests it, is not there. error: it broke. timeout: it did not end in time.
# silent: the node did not answer. busy: something else used the host, so that a low value says nothing of it.
CAUSES = ("closed", "absent", "error", "timeout", "silent", "busy")
Number = Union[int, float]


class CannotTest(Exception):
    """Raised by a check that cannot tell: the result is `unknown`, with the text as evidence.

    Args:
        text: what stood in the way, for a person.
        cause: one of `CAUSES`.
    """

    def __init__(self, text: str, cause: str) -> None:
        super().__init__(text)
        self.cause = cause


@dataclass(frozen=True)
class Parameter:
    """One parameter of a check, as people write it and as the check gets it.

    Attributes:
        name: as in the protocol.
        kind: `number`, `count` (an integer, 0 or more), `ratio` (0-1), `boolean`, `text`, `texts` (a list), `map` (text
            to text or null), `size` (becomes bytes), `bandwidth` (becomes bytes per second), `duration` (becomes seconds)
            or `any` (handed on as it is).
        what: what it means, one sentence.
        default: what holds when it is not given; None: nothing does.
        unit: of a number.
        needed: whether the check cannot run without it.
        choices: the only texts allowed, when not empty.
    """

    name: str
    kind: str
    what: str
    default: Any = None
    unit: Optional[str] = None
    needed: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """How a result is held against the same check's results of the other nodes, once all have come.

    Attributes:
        kind: `low` (a value below `ratio` x the peers' 75th percentile is bad), `high` (a value above the peers' median
            + `margin` is bad) or `same` (a value other than the peers' commonest is bad).
        of: `value`, or a key of the result's `facts`.
        ratio, margin: see `kind`; the margin is in the unit of the value.
        status: what a result that is off becomes, `fail` or `warn`.
    """

    kind: str
    of: str = "value"
    ratio: Optional[float] = None
    margin: Optional[float] = None
    status: str = "fail"


@dataclass
class Result:
    """What one check found.

    Attributes:
        check: name of the check.
        status: `pass`, `warn`, `fail`, `unknown` (it could not be tested: never healthy) or `skip` (does not apply).
        value, unit: what was measured; of several devices, the worst.
        threshold: what the value was compared with.
        evidence: the facts, for a person.
        seconds: how long it took.
        version: version of the check.
        required: whether a failure makes the node bad.
        name: what the protocol calls it.
        cause: why it is unknown, one of `CAUSES`.
        reference: what the threshold rests on: `{"kind": "absolute" | "peer" | "fleet", "value", "n"}`.
        facts: the evidence for machines; keys that all checks share: `devices` (a list of `{"device", "uuid", ...}`),
            `xids` (a list of numbers), `links`, `stack` (of what was stuck).
        compare: how to hold it against the peers, as documents of `Comparison`.
    """

    check: str
    status: str
    value: Optional[Number] = None
    unit: Optional[str] = None
    threshold: Optional[Number] = None
    evidence: str = ""
    seconds: float = 0.0
    version: int = 1
    required: bool = True
    name: str = ""
    cause: Optional[str] = None
    reference: Optional[dict[str, Any]] = None
    facts: dict[str, Any] = field(default_factory=dict)
    compare: list[dict[str, Any]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the result as a JSON-ready dict."""
        return asdict(self)


@dataclass(frozen=True)
class Context:
    """Where a check runs.

    Attributes:
        env: the environment that the ranks will get.
        workdir: the folder that the ranks will work in.
        run_folder: the run's folder, when there is a run.
        deadline_s: seconds until the check is killed.
        node: this node's name.
        root: where the host's /proc, /sys, /dev and /etc are seen: `/`, or a folder such as /host in a container, which
            the variable CORDEE_HOST_ROOT of the node names.
        python: the interpreter that has what the protocol's `requirements` name; None: the one on the ranks' PATH.
        requirements: what the protocol's own checks need, as pip takes it.
        inside: the words before a command that runs it in the ranks' container, in their folder; empty: there is none.
    """

    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "."
    run_folder: Optional[str] = None
    deadline_s: float = 30.0
    node: str = ""
    root: str = "/"
    python: Optional[str] = None
    requirements: tuple[Any, ...] = ()
    inside: tuple[str, ...] = ()

    @property
    def temporary(self) -> str:
        """The node's temporary folder, as the ranks will see it."""
        return self.env.get("TMPDIR") or "/tmp"

    def host(self, path: str) -> str:
        """Return where a path of the host, such as /sys/class/net, is seen from here."""
        return os.path.join(self.root, path.lstrip("/"))


class Check:
    """One question about a node, asked in a process of its own that may be killed at any moment.

    The process is forked: `run` may import what it likes, but must not start threads that outlive it; what it starts is
    killed with it. Anything heavy (torch) belongs in a child process of its own (`cordee.systems.vetting.node.checks.program`).

    Attributes:
        name: `host.memory` and the like.
        title: the question, one sentence.
        version: grows when the meaning of the result changes.
        parameters: what it takes; other names are refused before anything runs.
        scope: what a fault says something about: `node`, `device`, `link`, `user` (the job's own set-up) or `site`.
        alone: it measures speed: nothing else of ours may run on the node meanwhile.
        deadline_s: how long it may take unless the protocol says something else.
        without_gpu: what it does on a node without GPUs, one sentence.
    """

    name = ""
    title = ""
    version = 1
    parameters: tuple[Parameter, ...] = ()
    scope = "node"
    alone = False
    deadline_s = 30.0
    without_gpu = "The same."

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        """Return the result; whatever is raised counts as `unknown` with the exception's text as evidence.

        Args:
            parameters: all of `parameters` that were given or have a default; in bytes, seconds, bytes per second.
            context: where it runs.

        Raises:
            CannotTest: it cannot be tested here.
        """
        raise NotImplementedError

    def result(self, status: str, evidence: str, **measured: Any) -> Result:
        """Return a result of this check."""
        return Result(self.name, status, evidence=evidence, version=self.version, **measured)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the parameters that have a default."""
        return {parameter.name: parameter.default for parameter in cls.parameters if parameter.default is not None}


def find_command(name: str, env: dict[str, str], workdir: str) -> tuple[Optional[str], str]:
    """Return the executable that `name` would start in this environment, or None with the reason."""
    if "/" in name:
        candidates = [os.path.join(workdir, name)]
    else:
        folders = env.get("PATH", os.defpath).split(os.pathsep)
        candidates = [os.path.join(workdir, folder, name) for folder in folders]
    reason = "is not there" if "/" in name else "is not on PATH"
    for candidate in candidates:
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate, ""
            reason = f"is not executable ({candidate})"
    return None, reason
