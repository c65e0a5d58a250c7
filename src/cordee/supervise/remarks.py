"""What is said about a run at its start and end, and the children that seal and report it.

Sealing and the report need the document side; where that is missing, whoever reads does it later.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, Optional

from cordee.findings import Finding
from cordee.runs.folder import RunFolder, say
from cordee.runs.journal import JournalWriter
from cordee.runs.snapshot import changed_files
from cordee.supervise.intake import Intake
from cordee.supervise.nodes import Node

_LONGEST_S = 300.0
_MAKE_ROOM = "make room on the run folder's disk"


def changed_code(folder: RunFolder, plan: dict[str, Any]) -> list[Finding]:
    """Return which files of live code differ from the snapshot: what runs is then not what was submitted."""
    if plan["workdir"] != plan["job_folder"]:
        return []
    names = changed_files(Path(plan["job_folder"]), folder.code_manifest)
    if not names:
        return []
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    text = f"code changed between submission and start: {', '.join(names[:5])}{more}"
    next_step = 'set code = "snapshot" to run what was submitted'
    return [Finding(text, "warn", "code-changed", given=names, next=next_step)]


def closing_findings(nodes: list[Node], intake: Intake) -> list[Finding]:
    """Return what was lost on the way to the disk: dropped is never silent."""
    findings = []
    for node in nodes:
        if node.dropped_log_bytes:
            text = f"{node.dropped_log_bytes} bytes of output on {node.name} could not be written to the log"
            findings.append(Finding(text, "warn", "log-dropped", next=_MAKE_ROOM))
    for name, count in intake.lost_samples.items():
        text = f"{count} samples on {name} were not taken because earlier ones could not be stored"
        findings.append(Finding(text, "warn", "samples-lost", next=_MAKE_ROOM))
    if intake.dropped_bytes:
        text = f"{intake.dropped_bytes} bytes of telemetry could not be written"
        findings.append(Finding(text, "warn", "telemetry-dropped", next=_MAKE_ROOM))
    return findings


class Sealer:
    """Seals telemetry in children, one at a time, so that a long run's block log stays short.

    Args:
        folder: the run's folder.
        journal: where it is written until when telemetry is sealed.
    """

    def __init__(self, folder: RunFolder, journal: JournalWriter) -> None:
        self._folder, self._journal = folder, journal
        self._task: Optional[asyncio.Task[None]] = None

    def begin(self) -> None:
        """Seal what nobody writes to any more, unless that goes on already."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._seal_closed())

    async def finish(self) -> None:
        """Seal all of it, and delete what the journal says is sealed."""
        if self._task is not None:
            await self._task
        until = await _seal(self._folder, final=True)
        if until is not None:
            self._journal.append("sealed", until=until)
            await _document_side("cordee.runs.seal", str(self._folder.root), "--drop")

    async def _seal_closed(self) -> None:
        until = await _seal(self._folder, final=False)
        if until is not None:
            self._journal.append("sealed", durable=False, until=until)


async def _seal(folder: RunFolder, *, final: bool) -> Optional[float]:
    """Seal the telemetry that is closed, or all of it; returns the time it is sealed until, None when it could not be."""
    output = await _document_side("cordee.runs.seal", str(folder.root), *(["--final"] if final else []))
    if output is None:
        return None
    try:
        until = json.loads(output)["sealed_until"]
    except (ValueError, KeyError, TypeError):
        say(f"cordee supervisor: sealing said {output[:200]!r}")
        return None
    return None if until is None else float(until)


async def report(folder: RunFolder) -> None:
    """Render the report."""
    await _document_side("cordee.report", str(folder.root))


async def _document_side(module: str, *arguments: str) -> Optional[bytes]:
    """Run a module of the installed Cordée, not of the run's own copy; None when it is not there or failed."""
    env = dict(os.environ)
    paths = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path and not path.endswith("node.zip")]
    env.pop("PYTHONPATH", None)
    if paths:
        env["PYTHONPATH"] = os.pathsep.join(paths)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, env=env, stdout=asyncio.subprocess.PIPE
        )
    except OSError as error:
        say(f"cordee supervisor: cannot run {module}: {error}")
        return None
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _LONGEST_S)
    except asyncio.TimeoutError:
        process.kill()
        await process.wait()
        say(f"cordee supervisor: {module} took longer than {_LONGEST_S:.0f} s")
        return None
    return output if process.returncode == 0 else None
