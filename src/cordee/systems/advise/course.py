"""What can be said of a run's course whether it failed or goes on: chain, checkpoints, restarts, memory and disks."""

from __future__ import annotations

from collections.abc import Iterator

from cordee.backends.reasons.clauses import Rule, note, setting, size_value, time_value
from cordee.backends.reasons.situation import Situation
from cordee.core.backends import abilities
from cordee.core.findings import Finding
from cordee.core.units import format_duration, format_size
from cordee.runs.state import called
from cordee.systems.advise.words import causes

_NEAR = 0.9
_FULL = 0.03
_LEAST_BYTES = 1 << 30
_FEW_FILES = 1000
_SILENT_S = 300.0
_WORTH_SAVING_S = 60.0
_FIRST_WORD_S = 60.0
_ENDS_A_SEGMENT = ("time_limit", "preempted", "requeued", "node_lost", "no_agents", "killed", "lost")


def chain_without_progress(situation: Situation) -> Iterator[Finding]:
    """Say that a segment left no new checkpoint, which ends a chain."""
    if situation.state.reason != "no_progress":
        return
    limit, every = situation.part("segment").get("limit_s"), situation.part("checkpoint").get("every_s")
    change, advice = None, "save more often than a segment lasts"
    if limit and (every is None or every >= limit):
        change = {"checkpoint.every": time_value(max(1.0, limit / 4))}
        advice = f"set {setting('checkpoint.every', change['checkpoint.every'])}, or save more often in the script"
    advice += f"; a complete one must match [checkpoint] pattern = {situation.part('checkpoint').get('pattern')!r}"
    yield note("chain-no-progress", situation.state.text, "error", next=advice, change=change)


def between_segments(situation: Situation) -> Iterator[Finding]:
    """Say what the run goes on from when it waits for its next segment."""
    ended = situation.state.chain[-1] if situation.state.chain else None
    if ended is None:
        return
    where = f"from {ended['checkpoint']}" if ended.get("checkpoint") else "at zero"
    text = f"segment {ended.get('segment')} has ended ({ended.get('reason')}) and the next continues {where}"
    if ended.get("progress"):
        yield note("next-segment", text, "info")
    else:
        text += ": it left no new checkpoint"
        yield note("next-segment", text, "warn", next="save more often: a segment without progress is repeated in vain")


def chain_at_its_end(situation: Situation) -> Iterator[Finding]:
    """Say that no further segment is allowed."""
    policy, state = situation.part("segment"), situation.state
    if state.reason not in _ENDS_A_SEGMENT and situation.scheduler.state != "TIMEOUT":
        return
    if policy.get("next") == "forbidden":
        text = 'the cluster\'s profile forbids a next segment (requeue = "forbidden")'
        yield note("chain-forbidden", text, "warn", next="`cordee resume` begins one by hand")
    elif policy.get("max_segments", 1) > 1 and state.reason == "time_limit":
        text = f"all {policy['max_segments']} segments that its time allows were used"
        yield note("chain-used-up", text, "warn", next="`cordee resume`, or ask for more [need] time")


def repeated_failure(situation: Situation) -> Iterator[Finding]:
    """Say that restarting was given up."""
    reason = situation.state.reason
    if reason == "crash_loop":
        text = "the same failure came twice without a checkpoint in between, so that it was not repeated again"
        yield note("crash-loop", text, "info", next="fix the cause, then run `cordee resume`")
    elif reason == "retries":
        retries = situation.part("restart").get("retries")
        text = f"it failed more often than [restart] retries = {retries} allows without a new checkpoint"
        yield note(
            "retries",
            text,
            "info",
            next="fix the cause, or save more often: failures after a new checkpoint do not count",
        )


def nothing_saved(situation: Situation) -> Iterator[Finding]:
    """Say that a restart would begin at zero after some time of training."""
    state = situation.state
    if state.checkpoint is not None or state.started_at is None or not state.attempts:
        return
    trained = (state.ended_at or situation.now) - state.attempts[0]["started_at"]
    every = situation.part("checkpoint").get("every_s") or 3600.0
    if (trained > _WORTH_SAVING_S and (state.state == "failed" or state.restarts)) or trained > 2 * every:
        declared = situation.part("checkpoint").get("declared")
        text = f"no complete checkpoint was seen in {format_duration(trained)} of training: a restart starts the script again"
        advice = "call cordee.checkpointer in the script, or set [checkpoint] path, pattern and resume"
        if declared:
            path, pattern = situation.part("checkpoint").get("path"), situation.part("checkpoint").get("pattern")
            advice = f"does the script write {pattern} below {path}, under its final name only when it is whole?"
        yield note("no-checkpoint", text, "warn", next=advice)


def restarting(situation: Situation) -> Iterator[Finding]:
    """Say that a running run was restarted, and by what."""
    state = situation.state
    if state.restarts and state.attempts and not state.ended:
        last = next((entry for entry in reversed(state.attempts) if entry.get("reason")), None)
        text = f"it was restarted {state.restarts} times" + (f", last because {last['reason']}" if last else "")
        yield note("restarts", text, "warn", next="`cordee show` lists the attempts")


def time_is_short(situation: Situation) -> Iterator[Finding]:
    """Say that at the present speed the time is up before the last step."""
    state, facts = situation.state, situation.scheduler
    limit = facts.time_limit_s or situation.part("segment").get("limit_s")
    newest = state.attempts[-1] if state.attempts else None
    if not (limit and state.step and state.total and newest) or situation.part("segment").get("max_segments", 1) > 1:
        return
    done = state.step - (newest.get("resume_step") or 0)
    took = situation.now - newest["started_at"]
    used = facts.elapsed_s or (situation.now - (state.started_at or situation.now))
    if done <= 0 or took <= 0:
        return
    left = (state.total - state.step) * took / done
    if left > limit - used:
        needed = (used + left) * 1.2
        change = {"need.time": time_value(-(-needed // 600) * 600)}
        text = f"it needs about {format_duration(left)} more and has {format_duration(max(0.0, limit - used))} left"
        advice = (
            f"set {setting('need.time', change['need.time'])} next time; `cordee resume` continues from a checkpoint"
        )
        yield note("time-short", text, "warn", next=advice, change=change)


def memory_is_short(situation: Situation) -> Iterator[Finding]:
    """Say that a node's memory is nearly used up."""
    share, measured = situation.memory.share, situation.memory
    if share is None or share < _NEAR or measured.peak_bytes is None or measured.limit_bytes is None:
        return
    more = size_value(measured.limit_bytes * 1.5, up=True)
    text = f"a node used {format_size(measured.peak_bytes)} of {format_size(measured.limit_bytes)} memory ({share:.0%})"
    limited = "need.memory" in abilities(situation.backend).honours
    advice = f"set {setting('need.memory', more)}" if limited else "use fewer workers of the data loader"
    yield note("memory-short", text, "warn", next=advice, change={"need.memory": more} if limited else None)


def disks_are_full(situation: Situation) -> Iterator[Finding]:
    """Say which file systems of the run have no room, no free files, or cannot be written."""
    for disk in situation.disks:
        if not disk.writable:
            text = f"{disk.what} ({disk.path}) cannot be written from here"
            yield note("disk-read-only", text, "error", next="choose a place that you may write", path=disk.path)
        elif disk.free_bytes < min(_LEAST_BYTES, _FULL * disk.total_bytes):
            text = (
                f"{disk.what} ({disk.path}) has {format_size(disk.free_bytes)} left of {format_size(disk.total_bytes)}"
            )
            yield note("disk-short", text, "warn", next="make room: old runs and checkpoints first", path=disk.path)
        elif disk.files_free is not None and disk.files_free < _FEW_FILES:
            text = f"{disk.what} ({disk.path}) can take {disk.files_free} more files"
            yield note("files-short", text, "warn", next="remove or pack small files", path=disk.path)


def silent(situation: Situation) -> Iterator[Finding]:
    """Say that nothing was heard from a run that should be running."""
    if situation.state.state == "running" and situation.silent_s > _SILENT_S:
        text = f"nothing was heard from it for {format_duration(situation.silent_s)}"
        yield note("silent", text, "warn", next="`cordee watch` and control/supervisor.log; `cordee cancel` ends it")


def no_first_word(situation: Situation) -> Iterator[Finding]:
    """Say that a job has its nodes and its supervisor has not said a word."""
    facts = situation.scheduler
    if facts.state == "RUNNING" and (facts.elapsed_s or 0.0) > _FIRST_WORD_S:
        text = f"its job runs for {format_duration(facts.elapsed_s or 0.0)} and its supervisor has not said a word"
        found = next(causes((*facts.batch_output, *situation.own_output)), None)
        if found is not None:
            text += f": {found.text}"
        prints_to = abilities(situation.backend).prints_to
        printed = f"submit/{prints_to.format(job=facts.job)} and " if prints_to else ""
        advice = f"see {printed}control/supervisor.log in the run folder"
        yield note("no-first-word", text, "warn", next=found.next if found else advice)


def left_out(situation: Situation) -> Iterator[Finding]:
    """Say which nodes were left out or lost."""
    for node in situation.state.nodes:
        if node.role in ("excluded", "lost"):
            failed = [result for result in node.results if result.get("status") in ("fail", "unknown")]
            why = node.reason or "; ".join(f"{called(result)}: {result.get('evidence')}" for result in failed)
            text = f"node {node.node} is {node.role}" + (f": {why}" if why else "")
            advice = "tell the operators; [need] spare_nodes replaces such a node without a new place in the queue"
            yield note("node-out", text, "warn", next=advice, node=node.node)


def said_by_the_run(situation: Situation) -> Iterator[Finding]:
    """Pass on what the run itself found worth telling."""
    yield from (finding for finding in situation.state.findings if finding.severity != "info")


COURSE: tuple[Rule, ...] = (
    repeated_failure,
    chain_at_its_end,
    nothing_saved,
    restarting,
    time_is_short,
    memory_is_short,
    disks_are_full,
    silent,
    left_out,
    said_by_the_run,
)
