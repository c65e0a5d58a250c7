"""Is there room on the file systems that the job uses?"""

from __future__ import annotations

import os
from typing import Any, Callable

from cordee.core.units import format_size
from cordee.machine.limited import HangingError, answers_within, patience_s
from cordee.systems.vetting.node.checks._base import CannotTest, Check, Context, Parameter, Result
from cordee.systems.vetting.node.checks.storage.mount import paths_of

_RATIO = 0.05


class FreeCheck(Check):
    """Compares the free share of bytes and of files (inodes) of each path's file system with what must be left."""

    name = "storage.free"
    title = "Is there room on the file systems that the job uses?"
    parameters = (
        Parameter("paths", "texts", "folders to look at; without it, the ranks' working and temporary folder"),
        Parameter("min_free", "ratio", "least share of the bytes that must be free", default=_RATIO, unit="of all"),
        Parameter("min_free_files", "ratio", "least share of the files (inodes) that must be free", default=_RATIO),
        Parameter("min_bytes", "size", "fewest free bytes"),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        paths = paths_of(parameters, context)
        seconds = patience_s(context.deadline_s)
        answers = answers_within(seconds, {path: _question(path) for path in paths})
        faults, good, least = [], [], 1.0
        for path in paths:
            answer = answers[path]
            if isinstance(answer, HangingError):
                raise CannotTest(f"{path} hangs: no answer within {seconds:.3g} s", "timeout")
            if isinstance(answer, OSError):
                raise CannotTest(f"{path} cannot be looked at: {answer.strerror}", "absent")
            size, free, files, free_files = answer
            share = free / size if size else 1.0
            least = min(least, share)
            said = f"{path}: {format_size(free)} of {format_size(size)} free ({share:.1%})"
            fewest = parameters.get("min_bytes") or 0
            if share < parameters["min_free"]:
                faults.append(f"{said}, {parameters['min_free']:.1%} needed")
            elif free < fewest:
                faults.append(f"{said}, {format_size(fewest)} needed")
            elif files and free_files / files < parameters["min_free_files"]:
                needed = parameters["min_free_files"]
                faults.append(f"{path}: {free_files} of {files} files (inodes) left, {needed:.1%} needed")
            else:
                good.append(said)
        return self.result(
            "fail" if faults else "pass",
            "; ".join(faults or good),
            value=round(least, 4),
            unit="free share",
            threshold=parameters["min_free"],
            facts={"paths": paths},
        )


def _question(path: str) -> Callable[[], list[int]]:
    def ask() -> list[int]:
        status = os.statvfs(path)
        # What is kept back for root is neither free nor ours.
        size = (status.f_blocks - status.f_bfree + status.f_bavail) * status.f_frsize
        return [size, status.f_bavail * status.f_frsize, status.f_files, status.f_favail]

    return ask
