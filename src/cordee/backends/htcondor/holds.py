"""Why HTCondor holds a job, by the codes of HoldReasonCode, and what to do about it.

Source: HTCondor manual, "Job ClassAd Attributes", HoldReasonCode and HoldReasonSubCode.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

from cordee.backends.htcondor.description import EXIT_NO_PYTHON
from cordee.backends.htcondor.queue import CondorJob
from cordee.backends.reasons.clauses import setting, size_value
from cordee.core.units import format_size, parse_size

_KIB, _MIB = 1 << 10, 1 << 20
_LEAST = 10**9
_MORE = 1.5
_ISDIR, _ENOSPC, _EDQUOT = 21, 28, 122  # subcodes of 12 and 13 are numbers of errors
# A policy of a pool or a site has a number of its own, and says in words what it is about.
_OVER = r"exceed|\bover\b|above|larger|more than|out of|\blimit"
_MEMORY_OVER = re.compile(rf"memory.*({_OVER})|({_OVER}).*(memory|\bRAM\b)|\boom\b", re.IGNORECASE)
_DISK_OVER = re.compile(rf"(disk|scratch).*({_OVER})|({_OVER}).*(disk|scratch)", re.IGNORECASE)
_TIME_OVER = re.compile(
    r"(wall.?(clock|time)|run.?time|duration).*(exceed|limit|over|long)|(exceed|over|longer).*(wall.?(clock|time)|run.?time|duration)",
    re.IGNORECASE,
)
_RELEASE = "then `condor_release {job}`"


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


def hold_of(job: CondorJob) -> Hold:
    """Return what it means that a job is held."""
    code, reason = int(job.number("HoldReasonCode")), job.text("HoldReason")
    find = _BY_CODE.get(code)
    hold = find(job, int(job.number("HoldReasonSubCode")), _plain(reason)) if find is not None else None
    if hold is None:
        hold = Hold("held", f"the pool holds it: {reason or f'code {code}'}", f"mend what the reason names, {_RELEASE}")
    return hold._replace(next=hold.next.replace("{job}", job.id))


def _memory(job: CondorJob) -> Hold:
    used, asked = job.memory_used_mib * _MIB, job.number("RequestMemory") * _MIB
    # What was seen last may be less than what it was held for.
    return _more("memory", "memory-exceeded", used, asked, job, lambda size: f"RequestMemory {-(-size // _MIB)}")


def _disk(job: CondorJob) -> Hold:
    used, asked = job.number("DiskUsage") * _KIB, job.number("RequestDisk") * _KIB
    return _more("disk", "disk-exceeded", used, asked, job, lambda size: f"RequestDisk {-(-size // _KIB)}")


def _more(what: str, rule: str, used: float, asked: float, job: CondorJob, by_hand: Callable[[int], str]) -> Hold:
    more = size_value(max(_MORE * max(used, asked), _LEAST), up=True)
    had = f"than the {format_size(asked)} that it had asked for" if asked else "than it had asked for"
    seen = f" ({format_size(used)})" if used > asked else ""
    return Hold(
        rule,
        f"it used more {what}{seen} {had}",
        f"set {setting(f'need.{what}', more)} and run it anew; "
        f"this job goes on after `condor_qedit {job.id} {by_hand(parse_size(more))}` and `condor_release {job.id}`",
        {f"need.{what}": more},
    )


def _by_words(job: CondorJob, sub: int, reason: str) -> Hold | None:
    """Read what a policy says: of the machine (21), the job (3), the access point (26) or the limits of a container (34)."""
    if sub == 102 or _MEMORY_OVER.search(reason):
        return _memory(job)
    if sub == 104 or _DISK_OVER.search(reason):
        return _disk(job)
    return _duration(job, sub, reason) if _TIME_OVER.search(reason) else None


def _out_of_resources(job: CondorJob, sub: int, reason: str) -> Hold | None:
    return _disk(job) if sub == 104 or _DISK_OVER.search(reason) else _memory(job)


def _own_policy(job: CondorJob, sub: int, reason: str) -> Hold | None:
    if sub == EXIT_NO_PYTHON:
        in_image = bool(job.text("ContainerImage"))
        return Hold(
            "no-python",
            "no Python of version 3.9 or later was " + ("in its image" if in_image else "on the machine"),
            "take an image that has one: `image` of the EDF"
            if in_image
            else "name one with `python` in the profile, or ask for machines that have one by [htcondor] requirements, and run it anew",
        )
    return _by_words(job, sub, reason)


def _input(job: CondorJob, sub: int, reason: str) -> Hold:
    if sub in (_ENOSPC, _EDQUOT):
        more = size_value(max(_MORE * job.number("RequestDisk") * _KIB, _LEAST), up=True)
        text = "the disk of the machine was full before all of it had arrived"
        return Hold(
            "disk-full", text, f"set {setting('need.disk', more)} and run it anew, or release it", {"need.disk": more}
        )
    image = os.path.basename(job.text("ContainerImage"))
    if image and image in reason:
        return _container(job, sub, reason)
    match = re.search(r"reading from file ([^:|]+): \(errno (\d+)\) ([^;|']+)", reason)
    what = f"{match.group(1)} cannot be read ({match.group(3).strip()})" if match else reason
    return Hold("input-missing", f"what it needs could not be brought: {what}", f"put it back, {_RELEASE}")


def _output(job: CondorJob, sub: int, reason: str) -> Hold:
    match = re.search(r"(?:from file|to file|to|open) +(/[^:|]+): \(errno (\d+)\) ([^;|']+)", reason)
    path = _below_run(match.group(1), job) if match else ""
    if sub in (_ENOSPC, _EDQUOT) or "No space left" in reason or "quota exceeded" in reason:
        text = "a disk was full when its results came back"
        return Hold("disk-full", text, f"make room in the folder of runs, {_RELEASE}")
    if sub == _ISDIR and "symlink" in reason:
        text = f"its results could not be brought back: {path or 'one of them'} is a link to a folder, which HTCondor does not carry"
        advice = "have the script write folders, not links to them, and run it anew; a released job would meet the link again"
        return Hold("output-link", text, advice)
    what = f"{path} ({match.group(3).strip()})" if match else reason
    advice = f"mend it, {_RELEASE}: it goes on from the newest checkpoint that had come home"
    return Hold("output-failed", f"its results could not be brought back: {what}", advice)


def _below_run(path: str, job: CondorJob) -> str:
    """Return a path on the machine as it is in the run's folder."""
    _, found, below = path.partition(f"/{job.run}") if job.run else ("", "", "")
    return (below.removeprefix("/") or "its whole folder") if found else path


def _too_large(job: CondorJob, sub: int, reason: str) -> Hold:
    return Hold(
        "transfer-too-large",
        f"the pool allows no transfer of that size: {reason}",
        "bring or save less: fewer checkpoints are kept by [checkpoint] keep; large data belongs behind a URL",
    )


def _program(job: CondorJob, sub: int, reason: str) -> Hold:
    if job.text("ContainerImage"):
        return _container(job, sub, reason)
    return Hold(
        "not-started",
        f"the machine could not start it: {reason}",
        "`condor_release {job}` tries another machine; a profile's [htcondor] requirements leaves this one out",
    )


def _duration(job: CondorJob, sub: int, reason: str) -> Hold:
    return Hold(
        "too-long",
        f"it ran longer than the pool allows: {reason}",
        "set [need] time to what the pool allows, so that the run saves before; `condor_release {job}` has it go on",
    )


def _by_person(job: CondorJob, sub: int, reason: str) -> Hold:
    return Hold("held-by-person", f"somebody holds it: {reason}", "`condor_release {job}` has it go on")


def _at_home(job: CondorJob, sub: int, reason: str) -> Hold:
    advice = f"put the folder of the run back, with the rights that it had, {_RELEASE}"
    return Hold("folder-gone", f"the access point cannot write into the folder of the run: {reason}", advice)


def _container(job: CondorJob, sub: int, reason: str) -> Hold:
    image = job.text("ContainerImage")
    which = f'`image = "{image.removeprefix("docker://")}"`' if image.startswith("docker://") else "the line `image`"
    advice = f"correct {which} of the EDF and run it anew; where the machine was to blame, `condor_release {{job}}` tries another"
    return Hold("container-failed", f"its container could not be started: {reason}", advice)


_BY_CODE: dict[int, Callable[[CondorJob, int, str], Hold | None]] = {
    1: _by_person,
    3: _own_policy,
    6: _program,
    7: _at_home,
    9: _at_home,
    12: _output,
    13: _input,
    14: _at_home,
    15: _by_person,
    21: _by_words,
    22: _at_home,
    26: _by_words,
    32: _too_large,
    33: _too_large,
    34: _out_of_resources,
    35: _container,
    45: _container,
    46: _duration,
    47: _duration,
}


def _plain(reason: str) -> str:
    """Return a reason without the name of the slot that it came from."""
    return re.sub(r"^Error from \S+: ", "", reason)
