"""Who keeps a run from going on, and why: from what each rank was doing, how far it is in each process group, and its dumps. Pure.

A rank is blamed where what is known leaves nobody else: else the verdict is `unknown` and names who is suspected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cordee.core.words import counted
from cordee.systems.explain.hang.evidence import Hang, StandingGroup, StandingRank
from cordee.systems.explain.hang.stacks import own_line

UNKNOWN, QUIET = "unknown", "quiet"
# What also a program may not do that waits for work and tells of no steps.
_NEVER_MEANT = ("stopped", "file-system")
_DISTRIBUTED = ("/torch/distributed/",)
# What a Flight Recorder finding of these kinds says is certain: ranks called different things.
_DISAGREE = {
    "wrong-collective": "collective",
    "size": "size",
    "dtype": "dtype",
    "order": "order",
    "coalesced": "order",
    "all-to-all": "size",
    "p2p": "p2p",
}
_STALL = "gpu-stall"
_LOADER = ("/torch/utils/data/", "/cordee/systems/data/", "/datasets/iterable_dataset")
_SAVE = ("/torch/serialization.py", "/torch/distributed/checkpoint/", "/cordee/systems/checkpoints/", "/safetensors/")
_TEARDOWN_FILES = ("/multiprocessing/util.py", "/concurrent/futures/thread.py", "/weakref.py")
_TEARDOWN_CALLS = ("destroy_process_group", "_shutdown", "_exit_function", "_python_exit", "_exitfunc")
_FIFO_WAITS, _INPUTS = ("fifo", "pipe", "wait_for_partner"), ("FIFO ", "pipe:", "socket:")
_DISK_WAITS = (
    "nfs",
    "rpc_",
    "fuse",
    "request_wait_answer",
    "io_schedule",
    "folio",
    "wait_on_page",
    "lustre",
    "ptlrpc",
    "ceph",
    "gpfs",
    "jbd2",
    "xfs_",
    "ext4_",
)
_MOST_BLAMED, _MOST_LINES = 0.5, 3


class RankCause(NamedTuple):
    """Why a rank does not go on, by itself: kind, what it is in words, and whether that is certain without looking at others."""

    kind: str
    why: str
    certain: bool = False


class HangVerdict(NamedTuple):
    """One cause of a hang.

    Attributes:
        kind: without `hang-`.
        ranks: who is to blame for certain; suspects: among whom the cause is otherwise.
        why: what is known of them, in words.
        where: the line of code at which the first of them stands.
        waiting: ranks that wait for them.
        group, sequence: the collective that does not end; where nobody knows, empty and None.
        at: the line at which the others wait.
        flight: what the Flight Recorder's dumps say, where it is that.
    """

    kind: str
    ranks: tuple[int, ...]
    suspects: tuple[int, ...] = ()
    why: str = ""
    where: str = ""
    waiting: tuple[int, ...] = ()
    group: str = ""
    sequence: int | None = None
    at: str = ""
    flight: Mapping[str, Any] | None = None


class GroupWait(NamedTuple):
    """Ranks that wait in a collective of a group, and those of it that have not called it."""

    group: str
    sequence: int
    waiting: tuple[int, ...]
    late: tuple[int, ...]
    size: int


def judge(hang: Hang, flight: Iterable[Mapping[str, Any]] = ()) -> list[HangVerdict]:
    """Return the causes of a hang, those of most ranks first; one `unknown` where there is none that is certain.

    Args:
        flight: findings of the Flight Recorder's dumps of this attempt, as `cordee flight --json` has them.
    """
    waits = waits_of(hang.ranks)
    told = [one for one in flight if one.get("kind") in _DISAGREE and one.get("ranks")]
    found = [_of_flight(one, hang, waits, _DISAGREE[one["kind"]]) for one in told]
    blamed = {rank for verdict in found for rank in verdict.ranks}
    if not found:
        late = _roots(waits)
        for rank in late or _alone(hang):
            if rank not in blamed:
                found.append(_of_rank(hang, hang.ranks[rank], waits))
                blamed.add(rank)
    if not found:
        found += _of_ended(hang, waits)
    if not found:
        stalls = [one for one in flight if one.get("kind") == _STALL and len(one.get("ranks", ())) == 1]
        found += [_of_flight(one, hang, waits, "gpu") for one in stalls]
    if not found:
        found += [
            _of_rank(hang, hang.ranks[rank], waits)
            for rank in _named_by_flight(flight)
            if rank in hang.ranks and rank not in blamed
        ]
    merged = _together(found)
    if _may_be_meant(hang) and not any(verdict.kind in _NEVER_MEANT for verdict in merged):
        return [_quiet(hang)]
    if not merged or sum(len(verdict.ranks) for verdict in merged) > max(1, _MOST_BLAMED * hang.world):
        certain = (rank for _, rank in sorted(hang.ranks.items()) if cause_of(hang, rank).certain)
        return [_unknown(hang, waits, merged or _together([_of_rank(hang, rank, waits) for rank in certain]))]
    return merged


def waits_of(ranks: Mapping[int, StandingRank]) -> list[GroupWait]:
    """Return the collectives that have begun on some ranks and not on all, or not ended, the oldest of each group."""
    groups: dict[str, dict[int, StandingGroup]] = {}
    for rank, known in ranks.items():
        for name, group in known.groups.items():
            groups.setdefault(name, {})[rank] = group
    found = []
    for name, members in sorted(groups.items()):
        highest = max(group.enqueued for group in members.values())
        waiting = tuple(sorted(rank for rank, group in members.items() if group.waits and group.enqueued == highest))
        late = tuple(sorted(rank for rank, group in members.items() if group.enqueued < highest))
        if waiting:
            found.append(GroupWait(name, highest, waiting, late, max(group.size for group in members.values())))
    return found


def _roots(waits: list[GroupWait]) -> list[int]:
    """Return the ranks that others wait for and that wait for nobody themselves."""
    waiting = {rank for wait in waits for rank in wait.waiting}
    late = {rank for wait in waits for rank in wait.late}
    return sorted(late - waiting)


def _alone(hang: Hang) -> list[int]:
    """Return the few ranks that cannot go on by themselves, whatever the others do."""
    certain = [rank for rank, known in sorted(hang.ranks.items()) if cause_of(hang, known).certain]
    return certain if certain and len(certain) <= max(1, _MOST_BLAMED * len(hang.ranks)) else []


def cause_of(hang: Hang, rank: StandingRank) -> RankCause:
    """Return what a rank's own state says of why it stands."""
    if rank.why == "stopped" or rank.state in ("T", "t"):
        what = "traced by a debugger" if rank.state == "t" else "stopped by a signal"
        seen = "" if rank.frames or not rank.last_seen_at else "; the line is where it was seen last"
        return RankCause("stopped", f"its process {rank.pid or ''} is {what}{seen}".replace("  ", " "), True)
    node = hang.nodes.get(rank.node)
    files = [frame.file for frame in rank.frames]
    if rank.state == "D" or any(word in rank.wchan for word in _DISK_WAITS):
        where = f" for {rank.waits_for}" if rank.waits_for else ""
        hanging = f"; {', '.join(node.hanging)} does not answer on {rank.node}" if node and node.hanging else ""
        return RankCause(
            "file-system", f"it waits in the kernel ({rank.wchan or 'no interrupt reaches it'}){where}{hanging}", True
        )
    if node and node.full and _any(files, _SAVE):
        return RankCause("file-system", f"it saves, and {', '.join(node.full)} is full on {rank.node}", True)
    waits = any(word in rank.wchan for word in _FIFO_WAITS) or rank.waits_for.startswith(_INPUTS)
    if waits and rank.waits_for and not _any(files, _LOADER):
        return RankCause("input", f"it waits for {rank.waits_for}", True)
    if rank.why == "silent":
        busy = " and uses the processor" if rank.state == "R" or (rank.processor_s or 0.0) > 0.5 else ""
        return RankCause(
            "gil", f"no other thread of its interpreter has run for {_seconds(rank)}: it holds the GIL{busy}", True
        )
    if any(frame.name in _TEARDOWN_CALLS or _any([frame.file], _TEARDOWN_FILES) for frame in rank.frames):
        return RankCause("teardown", "it is being ended: what it waits for is in its clean-up")
    if _any(files, _SAVE):
        return RankCause("checkpoint", "it is in the saving or loading of a checkpoint")
    if _any(files, _LOADER):
        workers = [child for child in rank.children if child.state]
        states = ", ".join(sorted({f"{child.name} {child.state} in {child.wchan or '?'}" for child in workers}))
        return RankCause("data-loader", "it waits for data" + (f"; its workers: {states}" if states else ""))
    return RankCause("missing-rank", "")


def _seconds(rank: StandingRank) -> str:
    return f"{rank.beat_age_s:.0f} s" if rank.beat_age_s is not None else "some seconds"


def _any(texts: Iterable[str], parts: Iterable[str]) -> bool:
    return any(part in text for text in texts for part in parts)


def _of_rank(hang: Hang, rank: StandingRank, waits: list[GroupWait]) -> HangVerdict:
    """Blame a rank: others wait for it, or it cannot go on by itself."""
    cause = cause_of(hang, rank)
    kind = "busy" if hang.busy and cause.kind == "missing-rank" else cause.kind
    wait = next((one for one in waits if rank.rank in one.late), None)
    waiting = tuple(sorted({one for each in waits if rank.rank in each.late for one in each.waiting}))
    return HangVerdict(
        kind,
        (rank.rank,),
        why=cause.why,
        where=own_line(rank.frames) or rank.last_seen_at,
        waiting=waiting,
        group=wait.group if wait else "",
        sequence=wait.sequence if wait else None,
        at=own_line(hang.ranks[wait.waiting[0]].frames) if wait else "",
    )


def _of_flight(told: Mapping[str, Any], hang: Hang, waits: list[GroupWait], kind: str) -> HangVerdict:
    ranks = tuple(told["ranks"])
    others = tuple(sorted({rank for wait in waits for rank in (*wait.waiting, *wait.late)} - set(ranks)))
    return HangVerdict(
        kind,
        ranks,
        why=str(told.get("text", "")),
        where=str(told.get("where", "")),
        waiting=others,
        group=str(told.get("process_group", "")),
        sequence=told.get("sequence"),
        at=str(told.get("expected", "")),
        flight=told,
    )


def _of_ended(hang: Hang, waits: list[GroupWait]) -> list[HangVerdict]:
    """Blame ranks that have ended where the others wait in a collective that all of the world must call."""
    for wait in waits:
        there = len(wait.waiting) + len(wait.late)
        if hang.ended and wait.size == hang.world and there + len(hang.ended) == hang.world:
            ended = sorted(hang.ended)
            codes = ", ".join(sorted({str(hang.ended[rank]) for rank in ended}))
            at = own_line(hang.ranks[wait.waiting[0]].frames)
            why = f"ended with exit code {codes}"
            return [HangVerdict("ended", tuple(ended), (), why, "", wait.waiting, wait.group, wait.sequence, at)]
    return []


def _named_by_flight(flight: Iterable[Mapping[str, Any]]) -> list[int]:
    return sorted({rank for one in flight if one.get("kind") not in (UNKNOWN, _STALL) for rank in one.get("ranks", ())})


def _together(found: list[HangVerdict]) -> list[HangVerdict]:
    """Make one verdict of those that differ in the rank only."""
    causes: dict[tuple[Any, ...], HangVerdict] = {}
    for verdict in found:
        key = (verdict.kind, verdict.where, verdict.group, verdict.sequence)
        known = causes.get(key)
        if known is None or verdict.flight is not None:
            causes[(*key, len(causes)) if verdict.flight is not None else key] = verdict
        else:
            causes[key] = known._replace(
                ranks=tuple(sorted({*known.ranks, *verdict.ranks})),
                waiting=tuple(sorted({*known.waiting, *verdict.waiting})),
            )
    return sorted(causes.values(), key=lambda verdict: (-len(verdict.ranks), verdict.ranks))


def _may_be_meant(hang: Hang) -> bool:
    """Return whether the program may just wait for work, as a server does: no rank has told of a step or of others."""
    return hang.quiet and not any(
        rank.groups or _any((frame.file for frame in rank.frames), _DISTRIBUTED) for rank in hang.ranks.values()
    )


def _quiet(hang: Hang) -> HangVerdict:
    where = next((line for rank in hang.ranks.values() if (line := own_line(rank.frames) or rank.last_seen_at)), "")
    return HangVerdict(QUIET, (), why="it tells of no steps, so that waiting for work looks like a hang", where=where)


def _unknown(hang: Hang, waits: list[GroupWait], doubted: list[HangVerdict]) -> HangVerdict:
    """Say what is known where nobody can be blamed."""
    suspects = tuple(sorted({rank for verdict in doubted for rank in verdict.ranks}))
    wait = waits[0] if waits else None
    missing = tuple(sorted(rank for rank, known in hang.ranks.items() if not known.collected))
    if wait is not None and not wait.late and not missing:
        why = f"all {len(wait.waiting)} ranks that were heard have called it, and it does not end: look at the network and the GPUs"
    elif doubted:
        one = doubted[0]
        how = f": rank {one.ranks[0]}{one.where and f' at {one.where}'}: {one.why}" if one.why else ""
        why = f"{len(suspects)} of {hang.world} ranks stand by themselves, so none of them is to blame for certain{how}"
    elif missing:
        why = f"{len(missing)} {'ranks were' if len(missing) > 1 else 'rank was'} not heard of"
        suspects = suspects or missing
    else:
        lines = Counter(own_line(known.frames) or known.last_seen_at for known in hang.ranks.values())
        stand = (f"{counted(count, 'rank')} at {line}" for line, count in lines.most_common(_MOST_LINES) if line)
        why = "; ".join(["nothing that was collected tells the ranks apart", *stand])
    first = hang.ranks[wait.waiting[0]] if wait else next(iter(hang.ranks.values()), None)
    where = own_line(first.frames) if first is not None else ""
    waiting = wait.waiting if wait else ()
    return HangVerdict(
        UNKNOWN,
        (),
        suspects,
        why,
        where,
        waiting,
        wait.group if wait else "",
        wait.sequence if wait else None,
        where if wait else "",
    )
