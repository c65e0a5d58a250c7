"""What is said about a run at its start and end, and the children that seal and report it.

Sealing and the report need the document side; where that is missing, whoever reads does it later.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Optional

from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.node_findings import NodeFindings, named
from cordee.control.supervisor.telemetry.sink import TelemetrySink
from cordee.core.clock import monotonic
from cordee.core.findings import Finding
from cordee.core.units import natural
from cordee.machine.processes.module_command import module_argv
from cordee.runs.folder import RunFolder, say
from cordee.runs.journal import JournalWriter
from cordee.runs.lane import Inline
from cordee.runs.plan import RunPlan
from cordee.runs.snapshot import changed_files
from cordee.telemetry.node.blocklog import MOST_RANK_NAMES, MOST_RUN_NAMES, list_parts
from cordee.wire.messages import RankFinding

_LONGEST_S = 300.0
# At a few bytes per second the newest part is closed after ten minutes; at 10,000 GPUs this is two minutes of samples.
_SEAL_BYTES = 128 << 20
_SEAL_S = 300.0
_SEAL_LONG_S = 3600.0
# Priorities of children: beside ranks that train, and where somebody waits for what they say.
LAST_IN_TURN, PROMPT, AT_ONCE = 19, 5, 0
_MAKE_ROOM = "make room on the run folder's disk"


def changed_code(folder: RunFolder, plan: RunPlan) -> list[Finding]:
    """Return which files of live code differ from the snapshot: what runs is then not what was submitted."""
    if plan.workdir != plan.job_folder:
        return []
    names = changed_files(Path(plan.job_folder), folder.code_manifest)
    if not names:
        return []
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    text = f"code changed between submission and start: {', '.join(names[:5])}{more}"
    next_step = 'set code = "snapshot" to run what was submitted'
    return [Finding(text, "warn", "code-changed", given=names, next=next_step)]


def closing_findings(nodes: list[Node], intake: TelemetrySink) -> list[Finding]:
    """Return what was lost on the way to the disk: dropped is never silent."""
    findings = []
    for node in nodes:
        if node.dropped_log_bytes:
            text = f"{node.dropped_log_bytes} bytes of output on {node.name} could not be written to the log"
            findings.append(Finding(text, "warn", "log-dropped", next=_MAKE_ROOM))
        if node.queued_log_bytes:
            text = f"{node.queued_log_bytes} bytes of output on {node.name} were not in its log yet when the run ended"
            what = f"the file system was slow; if lines are missing, control/agent*.log says how much of {node.name}'s"
            findings.append(Finding(text, "warn", "log-late", next=what))
        if node.unread_bytes:
            text = f"{node.unread_bytes} bytes of what ranks logged on {node.name} were not stored in time at the end"
            findings.append(
                Finding(text, "warn", "telemetry-dropped", next="log less often, or fewer values at a time")
            )
    for name, count in intake.lost_samples.items():
        text = f"{count} samples on {name} were not taken because earlier ones could not be stored"
        findings.append(Finding(text, "warn", "samples-lost", next=_MAKE_ROOM))
    if intake.dropped_bytes:
        text = f"{intake.dropped_bytes} bytes of telemetry could not be written"
        findings.append(Finding(text, "warn", "telemetry-dropped", next=_MAKE_ROOM))
    return findings + cut_off(intake)


def cut_off(intake: TelemetrySink) -> list[Finding]:
    """Return which nodes were lost with what their ranks had just logged: in one finding, or none."""
    if not intake.cut_off:
        return []
    nodes = sorted(intake.cut_off, key=natural)
    steps = {rank: step for node in nodes for rank, step in intake.cut_off[node].items()}
    of = f"{'rank' if len(steps) == 1 else 'ranks'} {named(list(map(str, sorted(steps))))}"
    low, high = min(steps.values()), max(steps.values())
    text = (
        f"{named(nodes)}: what {of} logged after step {low if low == high else f'{low} to {high}'} may be missing: "
        "the node was lost, and no agent has come there since to read it"
    )
    evidence = {"nodes": nodes, "ranks": sorted(steps), "after_steps": [low, high]}
    next_step = "the curves of these ranks may lack points there; the next attempt began at its checkpoint"
    return [Finding(text, "warn", "metrics-lost", evidence=evidence, next=next_step)]


class Notices:
    """Says, once per rank or node, what makes its telemetry less than it looks.

    Args:
        intake: what the agents tell.
        journal: where it is written.

    Attributes:
        of_nodes: what systems have found there.
    """

    def __init__(self, intake: TelemetrySink, journal: JournalWriter) -> None:
        self._intake, self._journal = intake, journal
        self.of_nodes = NodeFindings(journal)
        self._ranks: set[int] = set()
        self._nodes: set[str] = set()
        self._found: set[RankFinding] = set()
        self._troubles: set[str] = set()

    def tell(self) -> None:
        """Write what is new: ranks with too many metric names, nodes whose clock is wrong; of many in one finding."""
        self._tell_troubles()
        self.of_nodes.tell(self._intake.findings)
        self._tell_found()
        ranks = sorted(set(self._intake.capped_values) - self._ranks)
        if ranks:
            self._ranks.update(ranks)
            of = f"{'rank' if len(ranks) == 1 else 'ranks'} {named(list(map(str, ranks)))}"
            text = f"{of}: more than {MOST_RANK_NAMES} metric names; values of further names are left out"
            count = sum(self._intake.capped_values[rank] for rank in ranks)
            self._journal.append("finding", finding=names_capped(text, count).document())
        wrong = {node: off_s for node, off_s in self._intake.clocks.wrong.items() if node not in self._nodes}
        if wrong:
            self._nodes.update(wrong)
            clocks = [
                f"{node} by {abs(off_s):.0f} s ({'ahead' if off_s > 0 else 'behind'})" for node, off_s in wrong.items()
            ]
            text = f"clocks differ from the first node's: {named(clocks)}; their samples stand at other times"
            next_step = "set the nodes' clocks (chrony or NTP); compare times of different nodes with care"
            finding = Finding(text, "warn", "clock-differs", given=wrong, next=next_step)
            self._journal.append("finding", finding=finding.document())

    def _tell_found(self) -> None:
        """Write what ranks have found: each once, though every attempt may say it."""
        for found in self._intake.found:
            if found not in self._found:
                self._found.add(found)
                finding = Finding(found.text, "warn", found.rule, next=found.next)
                self._journal.append("finding", finding=finding.document())
        self._intake.found.clear()

    def _tell_troubles(self) -> None:
        """Write what agents cannot do as they should: the same of several nodes in one finding."""
        nodes: dict[str, list[str]] = {}
        for node, texts in self._intake.troubles.items():
            for text in texts:
                nodes.setdefault(text, []).append(node)
        for text, names in nodes.items():
            if text not in self._troubles:
                self._troubles.add(text)
                self._journal.append("finding", finding=trouble(f"{named(names)}: {text}").document())


def trouble(text: str) -> Finding:
    """Return that supervisor or agent could not do something, and went on."""
    return Finding(text, "warn", "control-trouble", next="the run continues; the logs in its folder control/ say more")


def stalled(text: str) -> Finding:
    """Return that the run folder's disk could not be written for a while."""
    what = "nothing was lost in the journal; ask who runs that file system, or look at the quota"
    return Finding(text, "warn", "disk-stalled", next=what)


class Sealer:
    """Seals telemetry in children, one at a time, so that a long run's block log stays short.

    Args:
        folder: the run's folder.
        journal: where it is written until when telemetry is sealed.
        lane: where it looks how much there is to seal.
        keep_s: samples that are older are thinned; such a run is long, and sealed once an hour. None: all are kept.
    """

    def __init__(
        self, folder: RunFolder, journal: JournalWriter, lane: Optional[Inline] = None, keep_s: Optional[float] = None
    ) -> None:
        self._folder, self._journal, self._lane = folder, journal, lane or Inline()
        self._keep = [] if keep_s is None else ["--keep", str(keep_s)]
        self._every_s = _SEAL_S if keep_s is None else _SEAL_LONG_S
        self._task: Optional[asyncio.Task[None]] = None
        self._last = monotonic()
        self._capped_values = 0

    def begin(self) -> None:
        """Seal what nobody writes to any more, if it is much or a while ago, unless that goes on already."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._seal_closed())

    def _due(self) -> bool:
        closed = [path for _, _, path in list_parts(self._folder.telemetry)[:-1]]
        return sum(map(_size, closed)) >= _SEAL_BYTES or (bool(closed) and monotonic() - self._last >= self._every_s)

    async def finish(self) -> None:
        """Seal all of it and render the report, in one process: nobody waits for a second one to start."""
        if self._task is not None:
            await self._task
        await document_side("cordee.cli", "report", "--close", str(self._folder.root), nice=PROMPT)

    async def _seal_closed(self) -> None:
        if await self._lane.run(self._due):
            self._last = monotonic()
            await self._seal()

    async def _seal(self) -> None:
        """Seal what is closed; the journal says so before the parts go."""
        output = await document_side("cordee.telemetry.store.seal", str(self._folder.root))
        if output is None:
            return
        try:
            document = json.loads(output)
            until, capped = document["sealed_until"], int(document["capped_values"])
        except (ValueError, KeyError, TypeError):
            say(f"cordee supervisor: sealing said {output[:200]!r}")
            return
        if capped and not self._capped_values:
            self._journal.append("finding", finding=run_names_capped(capped).document())
        self._capped_values = capped
        if until is not None:
            self._journal.append("sealed", until=float(until))
            await self._journal.durable()
            await document_side("cordee.telemetry.store.seal", str(self._folder.root), "--drop", *self._keep)


def run_names_capped(values: int) -> Finding:
    """Return that the ranks of a run used more metric names than are kept of one."""
    text = f"values of more than {MOST_RUN_NAMES} metric names were logged: those of further names are left out"
    return names_capped(text, values)


def names_capped(text: str, values: int) -> Finding:
    """Return that ranks used more metric names than are kept."""
    next_step = "log a quantity under one name; what varies, such as a layer or a batch, is no part of a name"
    return Finding(text, "warn", "metric-names-capped", given=values, next=next_step)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


async def close(sealer: Sealer, most_s: Optional[float]) -> None:
    """Seal all and render the report of a run that has ended, in `most_s` if given; what remains is done by who reads it next."""
    try:
        await asyncio.wait_for(sealer.finish(), most_s)
    except asyncio.TimeoutError:
        say(
            f"cordee supervisor: sealing and report took longer than {most_s:.0f} s: whoever reads the run does the rest"
        )


def document_side_env() -> dict[str, str]:
    """Return the environment in which Python finds the installed Cordée, not the run's own copy."""
    env = dict(os.environ)
    paths = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path and not path.endswith("node.zip")]
    env.pop("PYTHONPATH", None)
    if paths:
        env["PYTHONPATH"] = os.pathsep.join(paths)
    return env


async def document_side(
    module: str, *arguments: str, most_s: float = _LONGEST_S, nice: int = LAST_IN_TURN
) -> Optional[bytes]:
    """Run a module of the installed Cordée, not of the run's own copy; None when it is not there, failed, or took too long.

    Args:
        nice: its priority: `LAST_IN_TURN` beside ranks that train, `PROMPT` where somebody waits for it, `AT_ONCE` where no rank trains.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *module_argv(module, *arguments, user_site=True), env=document_side_env(), stdout=asyncio.subprocess.PIPE
        )
    except OSError as error:
        say(f"cordee supervisor: cannot run {module}: {error}")
        return None
    if nice != AT_ONCE:
        _keep_out_of_the_way(process.pid, nice)
    try:
        output, _ = await asyncio.wait_for(process.communicate(), most_s)
    except asyncio.TimeoutError:
        say(f"cordee supervisor: {module} took longer than {most_s:.0f} s")
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())
    return output if process.returncode == 0 else None


def _keep_out_of_the_way(pid: int, nice: int) -> None:
    """Have a child run after others, and not on the cores of the first ranks, which are the first ones."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, pid, nice)
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(pid, cores[-max(1, len(cores) // 8) :])
