"""What was traced once, by a digest of all that it depends on: `cordee check` shows it without tracing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from cordee.core.documents.config_paths import cache_folder
from cordee.job.scripts import local_files
from cordee.systems.sizing.traced import SCHEMA, TracedModel
from cordee.systems.sizing.workload import Workload

# What counts: another version of it may count otherwise.
_CHILD = tuple(sorted((Path(__file__).parent / "trace").glob("*.py")))


def digest_of(
    path: Path, function: str, argv: Sequence[str], workload: Workload, python: str, folder: Path, gpu: bool
) -> str:
    """Return what a trace depends on: script, modules beside it, arguments, workload, Python and its torch."""
    known = hashlib.sha256()
    about = {
        "workload": asdict(workload),
        "function": function,
        "argv": list(argv),
        "python": python,
        "gpu": gpu,
        "schema": SCHEMA,
    }
    known.update(json.dumps(about, sort_keys=True).encode())
    for file in [*_CHILD, *local_files(path, folder), *_torch_of(python)]:
        try:
            data = file.read_bytes()
        except OSError:
            data = b""
        known.update(f"{file}:{len(data)}:".encode() + data)
    return known.hexdigest()


def _torch_of(python: str) -> list[Path]:
    """Return the file of the version of a Python's torch, where it is found without running it."""
    root = Path(os.path.abspath(python)).parent.parent
    return sorted(root.glob("lib/python3*/site-packages/torch/version.py"))[:1]


def known_trace(digest: str, environ: Mapping[str, str] = os.environ) -> TracedModel | None:
    """Return what was traced, None where nothing was; a file that cannot be read is as none."""
    try:
        document = json.loads((_folder(environ) / f"{digest}.json").read_text())
        return TracedModel.from_document(document["traced"]) if document["schema"] == SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def has_traces(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether anything was traced."""
    return _folder(environ).is_dir()


def keep_trace(digest: str, model: TracedModel, environ: Mapping[str, str] = os.environ) -> None:
    """Keep a trace for later; where the cache cannot be written nothing is kept."""
    folder = _folder(environ)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f".{digest}.{os.getpid()}"
        fresh.write_text(json.dumps({"schema": SCHEMA, "traced": asdict(model)}))
        fresh.replace(folder / f"{digest}.json")
    except OSError:
        return


def _folder(environ: Mapping[str, str]) -> Path:
    return cache_folder(environ) / "plan"
