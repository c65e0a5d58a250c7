"""Starts the child that traces, watches its time and memory, and says in words why it could not."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cordee.core.errors import CordeeError
from cordee.systems.sizing.traced import TracedModel
from cordee.systems.sizing.workload import Workload

LIMIT_S = 300.0
LIMIT_BYTES = 6 << 30
_MOST_ANSWER = 1 << 20
_HERE = Path(__file__).parent


class TraceError(CordeeError):
    """A model could not be traced; says where and why."""

    kind = "plan_trace"
    exit_code = 2


def trace(
    path: Path,
    function: str,
    argv: Sequence[str],
    workload: Workload,
    *,
    python: str,
    folder: Path,
    gpu: bool,
    environ: Mapping[str, str] = os.environ,
    limit_s: float = LIMIT_S,
    limit_bytes: int = LIMIT_BYTES,
) -> TracedModel:
    """Return what a step allocates, by a child in the job's Python.

    Args:
        path: the script, or the file of the function.
        function: that returns the model; empty: the script itself runs until its second optimizer step.
        python: the job's.
        folder: in which the child runs.
        gpu: whether the job has GPUs, which code that asks finds.

    Raises:
        TraceError: it could not be traced, took too long, or too much memory.
    """
    with tempfile.TemporaryDirectory(prefix="cordee-plan-") as scratch:
        request = {
            "path": str(path), "function": function, "argv": list(argv), "folder": str(folder), "gpu": gpu,
            "memory_bytes": limit_bytes, "trains": workload.trains, "precision": workload.precision, "task": workload.task,
            "optimizer": workload.optimizer, "micro_batch": workload.micro_batch, "sequence": workload.sequence,
            "checkpointing": workload.checkpointing, "rank": workload.rank, "scratch": scratch,
        }  # fmt: skip
        found = _asked(request, python, folder, environ, limit_s)
        return TracedModel.from_document(found["traced"])


def count_config(
    config: Mapping[str, Any], file: Path, *, python: str, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the sizes of the model that `transformers` makes of a config, without weights, and without code of the model's own.

    Args:
        python: that has `transformers` and torch.

    Raises:
        TraceError: it cannot be made; says why.
    """
    with tempfile.TemporaryDirectory(prefix="cordee-plan-") as scratch:
        copy = Path(scratch) / "request.json"
        copy.write_text(json.dumps(dict(config)))
        request = {
            "path": str(file), "function": "", "folder": scratch, "scratch": scratch, "memory_bytes": LIMIT_BYTES,
            "config": str(copy),
        }  # fmt: skip
        return dict(_asked(request, python, Path(scratch), environ, LIMIT_S, "sizes.py")["sizes"])


def _asked(
    request: dict[str, Any],
    python: str,
    folder: Path,
    environ: Mapping[str, str],
    limit_s: float,
    child_file: str = "child.py",
) -> dict[str, Any]:
    """Return what a child answers to a request."""
    reading, writing = os.pipe()
    request["answer_fd"] = writing
    scratch, path, function = request["scratch"], Path(request["path"]), request["function"]
    env = {
        **environ,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": scratch,
        "MPLCONFIGDIR": scratch,
        "TRITON_CACHE_DIR": scratch,
        "TORCHINDUCTOR_CACHE_DIR": scratch,
    }
    try:
        child = subprocess.Popen(
            [python, str(_HERE / child_file), json.dumps(request)],
            pass_fds=(writing,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=env, cwd=folder, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        os.close(reading)
        raise TraceError("the job's Python does not start", given=python, next=str(error)) from None
    finally:
        os.close(writing)
    try:
        answer, late = _answer(reading, child, limit_s)
    finally:
        os.close(reading)
        _end(child)
    stderr = child.stderr.read().decode(errors="replace")[-2000:] if child.stderr else ""
    if late:
        hint = "give a function that returns the model (FILE.py:NAME), or --no-run with a config.json"
        raise TraceError(f"the trace took more than {limit_s:.0f} s and was ended", given=str(path), next=hint)
    return _document(answer, child.returncode, stderr, path, function)


def _answer(reading: int, child: subprocess.Popen[bytes], limit_s: float) -> tuple[bytes, bool]:
    """Return (what the child wrote, whether its time was over); what it prints is read away meanwhile."""
    until, answer = time.monotonic() + limit_s, b""
    noise = child.stderr.fileno() if child.stderr else -1
    waiting = [reading, noise]
    while reading in waiting:
        ready = select.select(waiting, [], [], max(0.0, until - time.monotonic()))[0]
        if not ready:
            return answer, True
        for one in ready:
            part = os.read(one, 65536)
            if not part:
                waiting.remove(one)
            elif one == reading and len(answer) < _MOST_ANSWER:
                answer += part
    return answer, False


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and all that it may have started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass
    child.wait()


def _document(answer: bytes, code: int | None, stderr: str, path: Path, function: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(answer)
    except ValueError:
        last = stderr.strip().splitlines()[-1:] or [f"exit code {code}"]
        raise TraceError("the trace ended without an answer", given=str(path), next=last[0][:300]) from None
    if "error" not in document:
        return document
    kind, said, line = document["error"], document["text"], document["line"]
    hints = {
        "MemoryError": "it needs more memory than a trace may take; give a function that returns the model",
        "ModuleNotFoundError": "trace with the job's own Python: activate its environment",
        "FileNotFoundError": "the script reads data before its first step; give a function that returns the model (FILE.py:NAME)",
        "RefusedAtPlanTime": "give a function that returns the model (FILE.py:NAME)",
    }
    where = f" at {line}" if line else ""
    raise TraceError(
        f"cannot be traced{where}: {kind}: {said}",
        given=f"{path}:{function}" if function else str(path),
        next=hints.get(kind, "give a function that returns (model, inputs) (FILE.py:NAME), or its config.json"),
    )
