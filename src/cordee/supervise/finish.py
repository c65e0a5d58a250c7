"""After the end: sealing and the report are children on the document side; where that is missing, whoever reads does it later."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Optional

from cordee.runs.folder import RunFolder

_LONGEST_S = 300.0


async def seal(folder: RunFolder, *, final: bool) -> Optional[float]:
    """Seal the telemetry that is closed, or all of it; returns the time it is sealed until, None when it could not be."""
    output = await _document_side("cordee.runs.seal", str(folder.root), *(["--final"] if final else []))
    if output is None:
        return None
    try:
        until = json.loads(output)["sealed_until"]
    except (ValueError, KeyError, TypeError):
        print(f"cordee supervisor: sealing said {output[:200]!r}", file=sys.stderr)
        return None
    return None if until is None else float(until)


async def drop_sealed(folder: RunFolder) -> None:
    """Delete the parts of the block log that the journal says are sealed."""
    await _document_side("cordee.runs.seal", str(folder.root), "--drop")


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
        print(f"cordee supervisor: cannot run {module}: {error}", file=sys.stderr)
        return None
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _LONGEST_S)
    except asyncio.TimeoutError:
        process.kill()
        await process.wait()
        print(f"cordee supervisor: {module} took longer than {_LONGEST_S:.0f} s", file=sys.stderr)
        return None
    return output if process.returncode == 0 else None
