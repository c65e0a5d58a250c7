"""The seam of checks."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any, Optional, Union


@dataclass
class Result:
    """What one check found.

    Attributes:
        check: name of the check.
        status: `pass`, `warn`, `fail`, `unknown` (it could not be tested: never healthy) or `skip` (does not apply).
        value, unit: what was measured.
        threshold: what the value was compared with.
        evidence: the facts, for a person.
        seconds: how long it took.
        version: version of the check.
        required: whether a failure makes the node bad.
    """

    check: str
    status: str
    value: Union[int, float, None] = None
    unit: Optional[str] = None
    threshold: Union[int, float, None] = None
    evidence: str = ""
    seconds: float = 0.0
    version: int = 1
    required: bool = True

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
    """

    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "."
    run_folder: Optional[str] = None
    deadline_s: float = 30.0

    @property
    def temporary(self) -> str:
        """The node's temporary folder, as the ranks will see it."""
        return self.env.get("TMPDIR") or "/tmp"


class Check:
    """One question about a node, asked in a process of its own that may be killed at any moment.

    Attributes:
        name: `host.memory` and the like.
        version: grows when the meaning of the result changes.
        parameters: names of the parameters that it takes; others are refused before anything runs.
    """

    name = ""
    version = 1
    parameters: frozenset[str] = frozenset()

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        """Return the result; whatever is raised counts as `unknown` with the exception's text as evidence."""
        raise NotImplementedError

    def result(self, status: str, evidence: str, **measured: Any) -> Result:
        """Return a result of this check."""
        return Result(self.name, status, evidence=evidence, version=self.version, **measured)


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
