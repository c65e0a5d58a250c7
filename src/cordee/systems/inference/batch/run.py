"""A batch from its command to one file of answers: split, run as a farm, collected."""

from __future__ import annotations

import fcntl
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.documents.toml_text import value_text
from cordee.core.errors import UsageError
from cordee.core.ports.farm import FARM, FarmResult, RunFarm
from cordee.core.registry import offered
from cordee.runs.folder import write_atomically
from cordee.systems.inference.batch.samples import (
    OUTPUT,
    REFUSED,
    SPEC,
    TASKS,
    BatchError,
    BatchRequest,
    collect,
    missing,
    read_spec,
    split,
    write_spec,
)
from cordee.systems.inference.model import ModelError, prepare_model

_TASK = "cordee.systems.inference.batch.task"


class BatchPlace(NamedTuple):
    """Where a batch runs, and what each task has."""

    cluster: str
    settings: dict[str, Any]
    cores: int = 1
    gpus: float = 0.0


def begin(
    folder: Path, samples: Path, model: str, config: str | None, tasks: int, tokens: int, at_once: int, device: str
) -> BatchRequest:
    """Return the batch of a folder: a new one, or the one that was begun there with the same samples.

    Raises:
        UsageError: the folder holds something else.
        CordeeError: as `split` and `prepare_model`.
    """
    digest, parts = split(samples, tasks)
    begun = (folder / SPEC).exists()
    if begun:
        spec = read_spec(folder)
        if (spec.digest, spec.tokens) != (digest, tokens):
            raise UsageError(
                "the folder holds a batch of other samples, or of other answers",
                given=str(folder),
                allowed=f"{spec.input}, --tokens {spec.tokens}",
                next="name another folder: --to DIR",
            )
        if not (folder / REFUSED).exists() or len(missing(folder, spec)) < len(spec.parts):
            return spec  # else its model was refused before it answered anything: it is made ready anew
    elif folder.exists() and any(folder.iterdir()):
        raise UsageError("the folder holds something else", given=str(folder), next="name a new one: --to DIR")
    (folder / "parts").mkdir(0o700, parents=True, exist_ok=True)
    try:
        served = prepare_model(model, None, config, folder / "model", fits=False)
    except BaseException:
        if not begun:
            shutil.rmtree(folder)
        raise
    spec = BatchRequest(str(samples.absolute()), digest, str(served.absolute()), tokens, at_once, device, parts)
    write_spec(folder, spec)
    return spec


def run_batch(folder: Path, spec: BatchRequest, place: BatchPlace, quiet: bool) -> dict[str, Any]:
    """Have all tasks run whose answers are not there, and collect the answers.

    Returns:
        `samples`, `faults` (samples without an answer), `tasks`, `run` (None: nothing was left to do), `output`.

    Raises:
        BatchError: somebody else runs it, or tasks failed; what is there stays.
        ModelError: the tasks could not load the model.
    """
    with (folder / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BatchError("another command runs this batch", given=str(folder), next="wait for its end") from None
        run = None
        left, refused = missing(folder, spec), folder / REFUSED
        if left:
            refused.unlink(missing_ok=True)
            done = _farmed(folder, left, place, quiet)
            run, left = done.run, missing(folder, spec)
            if left and refused.exists():
                raise ModelError(**json.loads(refused.read_text()))
            if left:
                raise BatchError(
                    f"{len(left)} of {len(spec.parts)} tasks have no answers; the run is {done.state}",
                    given=done.run,
                    next=f"`cordee farm show {folder / 'runs' / done.run} --failed`; the same command goes on with them",
                )
        return {**collect(folder, spec), "tasks": len(spec.parts), "run": run, "output": str(folder / OUTPUT)}


def _farmed(folder: Path, tasks: list[int], place: BatchPlace, quiet: bool) -> FarmResult:
    farm: RunFarm | None = offered(FARM)
    if farm is None:
        raise BatchError("nothing here runs many tasks", next="install the system trials")
    # -E and -P: the nodes' own copy of Cordée, in PYTHONPATH, has no batches, and the current folder may hold anything.
    words = [sys.executable, "-E", "-P", "-m", _TASK, str(folder.absolute())]
    job = folder / "job"
    job.mkdir(0o700, exist_ok=True)
    write_atomically(job / TASKS, "".join(f"{shlex.join(words)} {index}\n" for index in tasks))
    values = {"file": TASKS, "cores": place.cores, "gpus": place.gpus, "retries": 1}
    lines = ['name = "batch"', 'run = ["sh", "-c", "{line}"]', "", "[farm]"]
    lines += [f"{key} = {value_text(value)}" for key, value in values.items()]
    write_atomically(job / "cordee.toml", "\n".join(lines) + "\n")
    return farm(job, place.cluster, place.settings, folder / "runs", quiet)
