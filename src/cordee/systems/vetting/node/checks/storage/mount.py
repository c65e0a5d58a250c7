"""Are the file systems there, of the right kind, writable, and do they answer?"""

from __future__ import annotations

import fnmatch
import os
from typing import Any, Callable, Optional

from cordee.machine.limited import HangingError, answers_within, patience_s
from cordee.machine.mounts import Mount, mount_of, read_mounts
from cordee.systems.vetting.node.checks._base import CannotTest, Check, Context, Parameter, Result

_READ_ONLY = 0x1  # ST_RDONLY of statvfs(3)


class MountCheck(Check):
    """Asks each path's file system how it is (statvfs), each in a process of its own: a hung one is named and left behind."""

    name = "storage.mount"
    title = "Are the file systems there, of the right kind, writable, and do they answer?"
    parameters = (
        Parameter("paths", "texts", "folders to look at; without it, the ranks' working and temporary folder"),
        Parameter("types", "texts", "kinds of file system that are allowed, such as lustre, nfs*, tmpfs"),
        Parameter("writable", "boolean", "whether they must take files", default=True),
        Parameter("mounted", "boolean", "whether each path must be on another file system than /", default=False),
        Parameter("patience", "duration", "how long a file system may take to answer", unit="s"),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        paths = paths_of(parameters, context)
        mounts = read_mounts(context.root)
        if (parameters.get("types") or parameters["mounted"]) and not mounts:
            raise CannotTest(f"{context.host('/proc/self/mountinfo')} cannot be read", "closed")
        seconds = min(patience_s(context.deadline_s), parameters.get("patience") or context.deadline_s)
        answers = answers_within(seconds, {path: _question(path) for path in paths})
        faults, good, hanging = [], [], []
        for path in paths:
            mount = mount_of(path, mounts)
            kind = f" ({mount.kind} from {mount.source})" if mount is not None else ""
            fault = _fault(answers[path], mount, parameters, seconds)
            if fault is None:
                good.append(f"{path}{kind} answers")
            else:
                faults.append(f"{path}{kind} {fault}")
            if isinstance(answers[path], HangingError):
                hanging.append(path)
        return self.result(
            "fail" if faults else "pass",
            "; ".join(faults or good),
            value=len(faults),
            unit="bad file systems",
            threshold=0,
            facts={"hanging": hanging, "paths": paths},
        )


def paths_of(parameters: dict[str, Any], context: Context) -> list[str]:
    """Return the absolute paths that a storage check is about, without touching them."""
    given = parameters.get("paths") or [context.workdir, context.temporary]
    return list(dict.fromkeys(os.path.normpath(os.path.join(context.workdir, path)) for path in given))


def _question(path: str) -> Callable[[], int]:
    return lambda: os.statvfs(path).f_flag


def _fault(answer: Any, mount: Optional[Mount], parameters: dict[str, Any], seconds: float) -> Optional[str]:
    if isinstance(answer, HangingError):
        return f"hangs: no answer within {seconds:.3g} s"
    if isinstance(answer, OSError):
        return f"cannot be used: {answer.strerror}"
    if mount is not None and parameters["mounted"] and mount.point == "/":
        return "is not mounted: it lies on the file system of /"
    allowed = parameters.get("types")
    if mount is not None and allowed and not any(fnmatch.fnmatchcase(mount.kind, pattern) for pattern in allowed):
        return f"is of another kind than {', '.join(allowed)}"
    if parameters["writable"] and (answer & _READ_ONLY or (mount is not None and not mount.writable)):
        return "is mounted read-only"
    return None
