"""In what two runs differ: code, documents, environment, data, results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cordee.core.errors import CordeeError
from cordee.core.secrets import masked_document
from cordee.job.settings import differences
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import RunFolder

SCHEMA = "cordee.diff/1"


class RunChange(NamedTuple):
    """One difference; None where one of the runs has nothing of it."""

    what: str
    before: Any
    after: Any


def changes(before: RunFolder, after: RunFolder) -> list[RunChange]:
    """Return in what two runs differ, in the order code, documents, environment, data, results.

    Raises:
        RunFolderError: a plan or a journal cannot be read.
    """
    return [*_code(before, after), *_settings(before, after), *_compared(_facts(before), _facts(after))]


def _code(before: RunFolder, after: RunFolder) -> Iterator[RunChange]:
    one, other = (_entries(folder) for folder in (before, after))
    for name in sorted({*one, *other}):
        if one.get(name) != other.get(name):
            yield RunChange(f"code {name}", _shown(one.get(name)), _shown(other.get(name)))


def _entries(folder: RunFolder) -> dict[str, dict[str, Any]]:
    try:
        found: dict[str, dict[str, Any]] = read_json(folder.code_manifest, folder.root)["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return found


def _shown(entry: Mapping[str, Any] | None) -> str | None:
    if entry is None:
        return None
    return str(
        entry.get("skipped")
        or entry.get("link")
        or f"sha256 {str(entry.get('sha256'))[:12]}, {entry.get('size')} bytes"
    )


def _settings(before: RunFolder, after: RunFolder) -> Iterator[RunChange]:
    for key, row in differences({"before": before, "after": after}).items():
        yield RunChange(key, row["before"], row["after"])


def _compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[RunChange]:
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) != after.get(key):
            yield RunChange(key, before.get(key), after.get(key))


def _facts(folder: RunFolder) -> dict[str, Any]:
    """Return what is told of a run besides its documents: where and with what it ran, on which data, and what came of it."""
    from cordee.telemetry.store.reader import Run

    run = Run(folder)
    plan, state = run.plan, run.state
    step = plan["steps"][0]
    found: dict[str, Any] = {
        "environment cluster": plan.get("cluster"),
        "environment python": plan.get("python"),
        "environment nodes": ", ".join(sorted(node.host or node.node for node in state.nodes)) or None,
        "environment image": ((step.get("environment") or {}).get("document") or {}).get("root"),
    }
    for one in step.get("data", []):
        for key in ("place", "identity", "files", "bytes", "samples"):
            found[f"data {one['name']} {key}"] = one.get(key)
    took = state.ended_at - state.started_at if state.ended_at and state.started_at else None
    found.update(
        {
            "result state": state.state,
            "result exit_code": state.exit_code,
            "result seconds": None if took is None else round(took, 1),
            "result restarts": state.restarts,
            "result segments": state.segments,
            "result step": state.step,
            "result checkpoint": state.checkpoint,
        }
    )
    try:
        for name in run.logged():
            if not name.startswith("cordee/"):
                last = float(run.series(name).mean[-1])
                found[f"result {name}"] = last if math.isfinite(last) else str(last)
    except (CordeeError, IndexError, OSError):
        found["result metrics"] = "cannot be read"
    masked: dict[str, Any] = masked_document(found)
    return masked
