"""Why a run failed: memory, time, nodes, the program's last words, signals, and what Cordée itself decided."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cordee.backends.facts import GONE
from cordee.backends.reasons.clauses import Rule, note, setting, size_value, time_value
from cordee.backends.reasons.meaning import reasons_of
from cordee.backends.reasons.situation import Situation
from cordee.backends.slurm.node.commands import ENDED_STATES
from cordee.core.backends import abilities
from cordee.core.findings import Finding
from cordee.core.units import format_duration, format_size
from cordee.systems.advise.words import said

_NEAR = 0.9
_MORE = 1.5
_MOST_NODES = 6
_ENDED_FOR_IT = re.compile(r"exceed|oom|killed", re.IGNORECASE)
_SIGNALS = {
    "SIGSEGV": (
        "it touched memory that is not its own (SIGSEGV), as a faulty library or extension does",
        'set env = { PYTHONFAULTHANDLER = "1" } and run again: the traceback says where',
    ),
    "SIGBUS": (
        "memory that it had mapped was not there (SIGBUS): /dev/shm was full, or a mapped file shrank",
        "use fewer workers of the data loader; do not change data files while a training reads them",
    ),
    "SIGILL": (
        "the program was built for another CPU (SIGILL)",
        "use a build for these nodes, or ask for the right ones with [need] constraint",
    ),
    "SIGABRT": ("a library gave up (SIGABRT)", "see its last lines with `cordee logs`"),
    "SIGFPE": ("a library divided by zero (SIGFPE)", "see its last lines with `cordee logs`"),
    "SIGTERM": (
        "something outside of Cordée ended it (SIGTERM)",
        "`cordee resume`; who may signal your processes there?",
    ),
    "SIGINT": ("something outside of Cordée interrupted it (SIGINT)", "`cordee resume`"),
    "SIGHUP": (
        "its terminal was closed (SIGHUP)",
        "`cordee resume`; let the ranks keep the session that they start in",
    ),
    "SIGXCPU": ("it used more CPU time than `ulimit -t` allows (SIGXCPU)", 'add "ulimit -t unlimited" to setup'),
    "SIGXFSZ": ("it wrote a larger file than `ulimit -f` allows (SIGXFSZ)", 'add "ulimit -f unlimited" to setup'),
    "SIGPIPE": ("it wrote to a program that had ended (SIGPIPE)", "see its last lines with `cordee logs`"),
}
_REFUSED = ("not_continued", "submit", "not_submitted", "refused")
_OWN_REASONS = {
    "no_agents": ("too few of its agents came up on the nodes", "see control/agent-*.log in the run folder"),
    "no_port": ("no free port was found on the first node", "`cordee resume`"),
    "supervisor": ("its supervisor could not be kept alive", "see control/supervisor.log in the run folder"),
    "internal": ("Cordée itself broke", "see control/supervisor.log in the run folder, and report it"),
}


def _signal(situation: Situation) -> str | None:
    """Return the signal that ended the newest failure."""
    failures = situation.state.failures
    return failures[-1].get("signal") if failures else None


def memory(situation: Situation) -> Iterator[Finding]:
    """Say that it ran out of memory: by Slurm's word, the kernel's, the program's, or by what was sampled."""
    facts, measured = situation.scheduler, situation.memory
    asked = situation.part("request").get("memory_bytes") or facts.memory_bytes
    limit = asked or measured.limit_bytes
    peak = max(filter(None, (measured.peak_bytes, facts.most_rss_bytes)), default=None)
    text = _memory_text(situation, f"the {format_size(limit)} of a node" if limit else "its node has")
    if text is None:
        return
    change, advice = None, "use fewer workers of the data loader, or a node with more memory"
    if limit and ("need.memory" in abilities(situation.backend).honours or asked):
        more = size_value(max(limit, peak or 0) * _MORE, up=True)
        change = {"need.memory": more}
        advice = f"set {setting('need.memory', more)}, or use fewer workers of the data loader"
    given = f"a peak of {format_size(peak)} was measured" if peak else None
    allowed = f"{format_size(limit)} on a node" if limit else None
    evidence = {"peak_bytes": peak, "limit_bytes": limit}
    yield note("memory", text, "error", next=advice, change=change, given=given, allowed=allowed, **evidence)


def _memory_text(situation: Situation, of_node: str) -> str | None:
    """Return how memory ended it as a clause, None when nothing says that it did."""
    facts, measured = situation.scheduler, situation.memory
    near = measured.share is not None and measured.share >= _NEAR
    spoken = next((found for found in said(situation) if found.rule == "memory"), None)
    words = str((spoken.evidence or {}).get("line")) if spoken else ""
    if (
        facts.state == "OUT_OF_MEMORY"
        or facts.reason == "OutOfMemory"
        or (near and spoken)
        or _ENDED_FOR_IT.search(words)
    ):
        return f"it used more memory than {of_node}"
    if spoken:
        return f"it asked for more memory than was left of {of_node}"
    if _signal(situation) != "SIGKILL":
        return None
    pids = {rank.pid for rank in situation.state.ranks if rank.signal == "SIGKILL"}
    if pids & set(measured.killed_for_memory or ()):
        return "the kernel ended it (SIGKILL) because the memory of its node was full, as the kernel's log says"
    suggested = "the kernel ended it (SIGKILL) because the memory of its node was full, as its use of memory suggests"
    return suggested if near else None


def killed(situation: Situation) -> Iterator[Finding]:
    """Say that it was killed without a word, when memory does not explain it."""
    if _signal(situation) == "SIGKILL" and not list(memory(situation)):
        share = situation.memory.share
        seen = "memory was not sampled" if share is None else f"memory use was at most {share:.0%} of the node's"
        text = f"something killed it (SIGKILL); {seen}, which does not rule out that the kernel wanted its memory back"
        advice = "ask the operators for the kernel's log of its node; `cordee report` shows how its memory grew"
        yield note("killed", text, "error", next=advice)


def scheduler_state(situation: Situation) -> Iterator[Finding]:
    """Say how the scheduler ended the job, when it did."""
    facts = situation.scheduler
    if facts.state not in ENDED_STATES or facts.state in ("COMPLETED", "OUT_OF_MEMORY", "FAILED", "CANCELLED"):
        return
    if facts.state == "TIMEOUT":
        yield _out_of_time(situation)
        return
    meaning = reasons_of(situation).meaning(situation)
    where = f" ({facts.nodes})" if facts.state in ("NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED") and facts.nodes else ""
    change = {"need.spare_nodes": 1} if facts.state == "NODE_FAIL" else None
    rule = f"job-{facts.state.casefold().replace('_', '-')}"
    nodes = facts.nodes or None
    yield note(rule, meaning.text + where, "error", next=meaning.next, change=change, nodes=nodes)


def _out_of_time(situation: Situation) -> Finding:
    facts = situation.scheduler
    limit = facts.time_limit_s or situation.part("segment").get("limit_s")
    change, advice = None, "ask for more [need] time"
    if limit:
        change = {"need.time": time_value(2 * limit)}
        advice = f"set {setting('need.time', change['need.time'])}"
    if situation.state.checkpoint:
        advice = f"`cordee resume` continues from {situation.state.checkpoint}, or {advice}"
    else:
        advice += "; nothing was saved, so that `cordee resume` would begin at zero: see [checkpoint]"
    text = f"its time of {format_duration(limit)} was up" if limit else "its time was up"
    return note("time", text, "error", next=advice, change=change, limit_s=limit)


def time_limit(situation: Situation) -> Iterator[Finding]:
    """Say that the run's own time limit ended it."""
    if situation.state.reason == "time_limit":
        yield _out_of_time(situation)


def vetting(situation: Situation) -> Iterator[Finding]:
    """Say which checks left too few nodes."""
    if situation.state.reason != "vetting":
        return
    for node in situation.state.nodes:
        for result in node.results:
            if result.get("status") in ("fail", "unknown"):
                check = result.get("check")
                text = f"node {node.node} did not pass {check}: {result.get('evidence')}"
                yield note(
                    f"vetting-{check}", text, "error", next=_CHECKS.get(str(check), "mend it, then `cordee resume`")
                )


_CHECKS = {
    "environment": "mend the EDF or its image; `cordee env check` on a node, or in an interactive job, says what is missing there",
    "setup": "mend the setup lines; `cordee shell` or an interactive job on a node shows what they do there",
    "host.commands": "add what brings the command to setup, or remove it from [vet] commands",
    "host.modules": "install the module into the environment that run uses, or add what brings it to setup",
    "host.memory": "choose other nodes, or a smaller [vet] min_memory",
    "host.disk": "make room on the node, or choose a smaller [vet] min_disk",
    "host.load": "somebody else's processes are on the node: choose others, or a larger [vet] max_load",
}


def lost_nodes(situation: Situation) -> Iterator[Finding]:
    """Say which nodes were lost when that ended the run."""
    if situation.state.reason != "node_lost":
        return
    lost = [node for node in situation.state.nodes if node.role == "lost"]
    names = ", ".join(node.node for node in lost[:_MOST_NODES]) or "a node"
    reasons = sorted({node.reason for node in lost if node.reason})
    text = f"{names} was lost and no spare was left" + (f" ({'; '.join(reasons[:3])})" if reasons else "")
    advice = f"set {setting('need.spare_nodes', 1)} so that another takes its place, then `cordee resume`"
    change = {"need.spare_nodes": 1 + int(situation.part("request").get("spare_nodes", 0))}
    yield note("node-lost", text, "error", next=advice, change=change)


def refused(situation: Situation) -> Iterator[Finding]:
    """Say why the scheduler did not take the job, or its next segment."""
    if situation.state.reason in _REFUSED:
        request = situation.part("request").get("scheduler") or {}
        found = reasons_of(situation).refusal(situation.state.text, request)
        if found is not None:
            yield found


def not_started(situation: Situation) -> Iterator[Finding]:
    """Say that the command of the ranks could not be started at all."""
    if situation.state.reason == "not_started":
        argv = situation.part("tasks").get("argv") or ["the command"]
        message = (situation.state.failures or [{}])[-1].get("message") or situation.state.text
        advice = "give its full path in run, or add what brings it to setup"
        yield note("not-started", f"{argv[0]} could not be started: {message}", "error", next=advice)


def own_reason(situation: Situation) -> Iterator[Finding]:
    """Say what Cordée itself could not do."""
    found = _OWN_REASONS.get(situation.state.reason)
    if found is not None:
        text = f"{found[0]}: {situation.state.text}" if situation.state.text else found[0]
        yield note(situation.state.reason.replace("_", "-"), text, "error", next=found[1])


def by_signal(situation: Situation) -> Iterator[Finding]:
    """Say what the signal means that ended a rank."""
    found = _SIGNALS.get(_signal(situation) or "")
    if found is not None:
        yield note("signal", found[0], "error", next=found[1], signal=_signal(situation))


def gone(situation: Situation) -> Iterator[Finding]:
    """Say that the run vanished without a last word."""
    facts, state = situation.scheduler, situation.state
    # A run whose job failed was ended in its journal by who looked, if anybody has.
    if (state.ended and state.reason != "job_failed") or facts.state in ("TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", ""):
        return
    nothing = "nothing of it is left on this machine" if facts.job is None else "the scheduler has forgotten its job"
    meaning = nothing if facts.state == GONE else reasons_of(situation).meaning(situation).text
    code = f" (code {facts.exit_code})" if facts.exit_code else f" (signal {facts.signal})" if facts.signal else ""
    text = f"it stopped without a last word: {meaning}{code}"
    yield note("gone", text, "error", next=f"`cordee resume {situation.run}` continues it; control/*.log may say more")


def unexplained(situation: Situation) -> Iterator[Finding]:
    """Say what is known when no other rule knows better."""
    if situation.state.text:
        yield note("failed", situation.state.text, "error", next="see `cordee logs` and `cordee report`")


def failed_below(situation: Situation) -> Iterator[Finding]:
    """Say which runs below it failed before it had ranks of its own, and who explains them."""
    for child in [] if situation.state.attempts else situation.state.children:
        if child["state"] == "failed":
            advice = f"`cordee advise {situation.run}/{child['name']}` says why, and what to change"
            yield note("below", f"{child['name']} failed: {child['text']}", "error", next=advice)


CAUSES: tuple[Rule, ...] = (
    vetting,
    memory,
    scheduler_state,
    time_limit,
    not_started,
    lost_nodes,
    refused,
    said,
    by_signal,
    killed,
    own_reason,
    gone,
    unexplained,
)
