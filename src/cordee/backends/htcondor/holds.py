"""Why HTCondor holds a job, by the codes of HoldReasonCode, and what to do about it.

Source: HTCondor manual, "Job ClassAd Attributes", HoldReasonCode.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cordee.backends.htcondor.description import EXIT_NO_PYTHON
from cordee.backends.htcondor.queue import Job
from cordee.core.units import format_size

_MIB = 1 << 20


class Hold(NamedTuple):
    """A reason why a job is held.

    Attributes:
        rule: its name among findings.
        text: a clause that can stand after "because".
        next: what to do.
        change: what to set in cordee.toml, by dotted key; empty: nothing.
    """

    rule: str
    text: str
    next: str
    change: dict[str, str] = {}  # noqa: RUF012


_RELEASE = "then `condor_release {job}`"


def hold_of(job: Job) -> Hold:
    """Return what it means that a job is held."""
    code, sub = _number(job, "HoldReasonCode"), _number(job, "HoldReasonSubCode")
    reason = job.text("HoldReason")
    find = _BY_CODE.get(code)
    hold = find(job, sub, reason) if find is not None else None
    if hold is None:
        hold = Hold("held", f"the pool holds it: {reason or f'code {code}'}", f"mend what the reason names, {_RELEASE}")
    return hold._replace(next=hold.next.replace("{job}", job.id))


def _memory(job: Job, sub: int, reason: str) -> Hold | None:
    if sub != 102 and "memory" not in reason.casefold():
        return _disk(job, sub, reason) if "disk" in reason.casefold() else None
    used, asked = _number(job, "MemoryUsage") * _MIB, _number(job, "RequestMemory") * _MIB
    more = _size(max(1.5 * max(used, asked), 1 << 30))
    seen = (
        f"it used {format_size(used)} of memory and had asked for {format_size(asked)}"
        if used
        else "it used more memory than it had asked for"
    )
    return Hold(
        "memory-exceeded",
        seen,
        f'set [need] memory = "{more}" and run it anew; {_by_hand(job, f"RequestMemory {_mib(more)}")}',
        {"need.memory": more},
    )


def _disk(job: Job, sub: int, reason: str) -> Hold:
    used, asked = _number(job, "DiskUsage") * 1024, _number(job, "RequestDisk") * 1024
    more = _size(max(1.5 * max(used, asked), 1 << 30))
    return Hold(
        "disk-exceeded",
        f"it used {format_size(used)} of disk and had asked for {format_size(asked)}",
        f'set [need] disk = "{more}" and run it anew; {_by_hand(job, f"RequestDisk {_mib(more) * 1024}")}',
        {"need.disk": more},
    )


def _input(job: Job, sub: int, reason: str) -> Hold:
    match = re.search(r"reading from file ([^:|]+): \(errno (\d+)\) ([^;|']+)", reason)
    what = f"{match.group(1)} cannot be read ({match.group(3).strip()})" if match else reason
    return Hold("input-missing", f"what it needs could not be brought: {what}", f"put it back, {_RELEASE}")


def _output(job: Job, sub: int, reason: str) -> Hold:
    match = re.search(r"\(errno (\d+)\) ([^;|']+)", reason)
    if sub == 28 or "No space left" in reason:
        return Hold(
            "disk-full", "a disk was full when its results came back", f"make room in the folder of runs, {_RELEASE}"
        )
    what = match.group(2).strip() if match else reason
    return Hold(
        "output-failed",
        f"its results could not be brought back: {what}",
        f"mend it, {_RELEASE}: it goes on from what was kept",
    )


def _program(job: Job, sub: int, reason: str) -> Hold:
    return Hold(
        "not-started",
        f"the machine could not start it: {reason}",
        "`condor_release {job}` tries another machine; a profile's [htcondor] requirements leaves this one out",
    )


def _duration(job: Job, sub: int, reason: str) -> Hold:
    return Hold(
        "too-long",
        f"it ran longer than the pool allows: {reason}",
        "set [need] time to what the pool allows, so that the run saves before; `cordee resume` continues it",
    )


def _policy(job: Job, sub: int, reason: str) -> Hold | None:
    if sub == EXIT_NO_PYTHON:
        return Hold(
            "no-python",
            "no Python of version 3.9 or later was on the machine",
            "name one with `python` in the profile, or ask for machines that have one by [htcondor] requirements, and run it anew",
        )
    return None


def _by_person(job: Job, sub: int, reason: str) -> Hold:
    return Hold("held-by-person", f"somebody holds it: {reason}", "`condor_release {job}` has it go on")


def _container(job: Job, sub: int, reason: str) -> Hold:
    return Hold("container-failed", f"its container could not be started: {reason}", f"look at the image, {_RELEASE}")


_BY_CODE = {
    1: _by_person,
    3: _policy,
    6: _program,
    12: _output,
    13: _input,
    14: _input,
    21: _memory,
    26: _memory,
    34: _memory,
    35: _container,
    46: _duration,
    47: _duration,
    48: _container,
    104: _disk,
}


def _by_hand(job: Job, setting: str) -> str:
    name, _, value = setting.partition(" ")
    return f"this job goes on after `condor_qedit {job.id} {name} {value}` and `condor_release {job.id}`"


def _number(job: Job, name: str) -> int:
    value = job.ad.get(name)
    return int(value) if isinstance(value, (int, float)) else 0


def _size(size_bytes: float) -> str:
    return f"{-int(-size_bytes // (1 << 30))}GiB"


def _mib(size: str) -> int:
    return int(size.removesuffix("GiB")) * 1024
