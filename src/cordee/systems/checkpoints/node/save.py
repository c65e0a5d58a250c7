"""Saving and restoring a training: model, optimizer, random generators and the position in the data, all or nothing.

A checkpoint is written by all ranks into a hidden folder with PyTorch's distributed checkpoint, made durable, described
by a manifest, and renamed. Whatever is killed, and whenever: the folder under its final name is complete, and the older
one is there until then. The manifest names the run: what another run made is neither restored nor replaced nor removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import warnings
from typing import Any, Iterator, Mapping, Optional, Union

from cordee.core.errors import CheckpointError
from cordee.runs.checkpoint import Checkpoint
from cordee.systems.checkpoints.node import dcp_reader, random_state, save_facts
from cordee.systems.checkpoints.node.folder import MANIFEST, SCHEMA, read_manifest
from cordee.systems.checkpoints.node.sums import crc32_of, verify, written_sums
from cordee.systems.checkpoints.node.training_folder import CheckpointPlace

Path = Union[str, "os.PathLike[str]"]


def checkpointer(
    model: Any = None,
    optimizer: Any = None,
    *,
    data: Any = None,
    extra: Optional[Mapping[str, Any]] = None,
    folder: Optional[Path] = None,
    keep: int = 3,
    every_s: Optional[float] = None,
    every_steps: Optional[int] = None,
) -> Checkpointer:
    """Return a Checkpointer; every rank makes one with the same arguments.

    Args:
        model: a module, also wrapped in DDP or FSDP.
        optimizer: one optimizer or a list of them.
        data: what knows the position in the data: an object with `state_dict` and `load_state_dict`.
        extra: more such objects by name, a learning-rate scheduler for example.
        folder: where checkpoints lie; default CORDEE_CHECKPOINT_DIR, else `checkpoints`.
        keep: how many complete checkpoints of this run stay: those that were saved last.
        every_s: seconds between checkpoints for `due`; default CORDEE_CHECKPOINT_EVERY.
        every_steps: steps between checkpoints for `due`; wins over `every_s`.
    """
    place = os.path.abspath(folder or os.environ.get("CORDEE_CHECKPOINT_DIR") or "checkpoints")
    seconds = every_s if every_s is not None else float(os.environ.get("CORDEE_CHECKPOINT_EVERY") or 0) or None
    return Checkpointer(model, optimizer, data, dict(extra or {}), place, keep, seconds, every_steps)


class Checkpointer:
    """Saves and restores one training; made by `cordee.checkpointer`."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        data: Any,
        extra: dict[str, Any],
        folder: str,
        keep: int,
        every_s: Optional[float],
        every_steps: Optional[int],
    ) -> None:
        if keep < 1:
            raise CheckpointError("at least one checkpoint must stay", given=keep, allowed="keep >= 1")
        self._model, self._optimizer = model, optimizer
        self._positions = dict(extra)
        if data is not None:
            self._positions["data"] = data
        self._folder, self._keep = folder, keep
        self._every_s, self._every_steps = every_s, every_steps
        self._saved_at = time.monotonic()
        self._place = CheckpointPlace(folder)

    def newest(self) -> Optional[Checkpoint]:
        """Return the checkpoint that `restore` would load, None when there is none."""
        found = self._place.restorable()
        return found[0] if found else None

    def restore(self) -> int:
        """Load the newest complete checkpoint of this run and return the step to begin with: 0 when there is none.

        Without one of its own it is what the run was told to begin from. Outside a run all in the folder count, by
        whomever. All ranks load the same one, also a smaller or larger number of ranks than saved it. Every file is compared
        with its check sum before; a damaged one is passed over with a warning and a finding.

        Raises:
            CheckpointError: every complete checkpoint failed to load.
        """
        if _world()[0] == 0:
            self._place.put_back()
        self._place.goes_on = True
        candidates = self._agreed([found.path for found in self._place.restorable()])
        failures: list[str] = []
        for path in candidates:
            step, problem = self._tried(path)
            if not problem:
                self._tell(failures, f"; step {step} was restored from {path}")
                return step + 1
            failures.append(f"{path} is not used: {problem}")
            warnings.warn(f"a checkpoint cannot be loaded and the one before it is tried: {failures[-1]}", stacklevel=2)
        if failures:
            self._tell(failures, "")
            raise CheckpointError(
                "no checkpoint can be loaded",
                given="; ".join(failures),
                allowed="an undamaged checkpoint of the same model",
                next=f"move {self._folder} away to begin at zero",
            )
        return 0

    def due(self, step: int) -> bool:
        """Return whether a checkpoint should be saved after `step`; the same on all ranks.

        With `every_steps` it is the step that decides. With `every_s` rank 0's clock does, and its answer is sent to
        all, which costs one small broadcast a call.
        """
        if self._every_steps:
            return (step + 1) % self._every_steps == 0
        if self._every_s is None:
            return False
        late = time.monotonic() - self._saved_at >= self._every_s
        return bool(self._agreed(late))

    def save(self, step: int) -> str:
        """Save the state after `step`; every rank calls this. Returns the checkpoint's path.

        The training waits meanwhile; how long, and how many bytes each rank wrote, goes into the run's telemetry.

        Raises:
            CheckpointError: it could not be written; the older ones are untouched.
        """
        import torch.distributed.checkpoint as dcp

        began = time.monotonic()
        rank, _ = _world()
        name = f"step-{step:09d}"
        partial = str(self._agreed(self._place.hidden(name)))
        problem = ""
        if rank == 0:
            problem = _attempt(lambda: self._place.begin(partial))
        self._raise_together(problem, name)
        with _no_remark():
            problem = _attempt(lambda: dcp.save(self._state(), checkpoint_id=partial))
        problem = problem or _attempt(lambda: self._save_rank(os.path.join(partial, f"rank-{rank}.pt")))
        self._raise_together(problem, name)
        sums: dict[str, int] = {}
        problem = _attempt(lambda: sums.update(written_sums(partial, rank)))
        for others in self._gathered(sums):
            sums.update(others)
        self._raise_together(problem, name)
        made: list[str] = []
        if rank == 0:
            problem = _attempt(lambda: made.append(self._complete_folder(partial, name, step, sums)))
        self._raise_together(problem, name)
        target = str(self._agreed(made[0] if made else ""))
        self._place.saved.add(target)
        self._saved_at = time.monotonic()
        if rank == 0:
            self._place.remove_old(self._keep)
        save_facts.tell(step, time.monotonic() - began, save_facts.written_bytes(target, rank))
        return target

    def _state(self) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        if self._model is None:
            return {}
        model, optimizer = get_state_dict(self._model, self._optimizer if self._optimizer is not None else [])
        return {"model": model, "optimizer": optimizer}

    def _tried(self, path: str) -> tuple[int, str]:
        """Return the step of a checkpoint that all ranks have loaded, or what stood against it on the first of them."""
        rank, size = _world()
        steps = [-1]
        for action in (lambda: verify(path, rank, size), lambda: steps.append(self._load(path))):
            problems = [text for text in self._gathered(_attempt(action)) if text]
            if problems:
                return -1, problems[0]
        return steps[-1], ""

    def _tell(self, failures: list[str], then: str) -> None:
        if _world()[0] == 0:
            for failure in failures:
                save_facts.tell_damaged(failure + then)

    def _load(self, path: str) -> int:
        import torch
        from torch.distributed.checkpoint.state_dict import set_state_dict

        manifest = read_manifest(path)
        state = self._state()
        if state:
            with _no_remark():
                dcp_reader.load(state, path)
            optimizer = self._optimizer if self._optimizer is not None else []
            set_state_dict(self._model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        rank, size = _world()
        if size != manifest["world_size"]:
            warnings.warn(
                f"saved by {manifest['world_size']} ranks, restored by {size}: random generators start anew, "
                "positions are those of rank 0",
                stacklevel=3,
            )
        same = size == manifest["world_size"]
        own = torch.load(os.path.join(path, f"rank-{rank if same else 0}.pt"), weights_only=True)
        for name, holder in self._positions.items():
            if name in own["positions"]:
                holder.load_state_dict(own["positions"][name])
        if same:
            random_state.restore(own["random"])
        return int(manifest["step"])

    def _save_rank(self, path: str) -> None:
        import torch

        positions = {name: holder.state_dict() for name, holder in self._positions.items()}
        torch.save({"random": random_state.capture(), "positions": positions}, path)

    def _complete_folder(self, partial: str, name: str, step: int, sums: dict[str, int]) -> str:
        """Describe what lies in `partial`, make it durable and give it its name; returns its path."""
        import torch

        files = {}
        for file_name in sorted(os.listdir(partial)):
            path = os.path.join(partial, file_name)
            files[file_name] = os.stat(path).st_size
            if file_name not in sums:
                sums[file_name] = crc32_of(path)
            _make_durable(path)
        manifest = {
            "schema": SCHEMA,
            "step": step,
            "world_size": _world()[1],
            "files": files,
            "crc32": {file_name: sums[file_name] for file_name in files},
            **self._place.maker(),
            "torch": torch.__version__,
            "time": time.time(),
        }
        with open(os.path.join(partial, MANIFEST), "w", encoding="utf-8") as file:
            json.dump(manifest, file)
            file.flush()
            os.fsync(file.fileno())
        _make_durable(partial)
        target = self._place.renamed(partial, name)
        _make_durable(self._folder)
        shutil.rmtree(f"{partial}.old", ignore_errors=True)
        return target

    def _raise_together(self, problem: str, name: str) -> None:
        """Let all ranks fail when one did, instead of leaving the others waiting."""
        problems = [text for text in self._gathered(problem) if text]
        if problems:
            newest = self.newest()
            raise CheckpointError(
                f"{name} could not be saved: {problems[0]}",
                given=self._folder,
                next=f"make room; {newest.name} is complete" if newest else "make room; there is no older one",
            )

    @staticmethod
    def _agreed(value: Any) -> Any:
        """Return rank 0's value on all ranks."""
        if _world()[1] == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    @staticmethod
    def _gathered(value: Any) -> list[Any]:
        """Return all ranks' values on all ranks."""
        size = _world()[1]
        if size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * size
        dist.all_gather_object(values, value)
        return values


def _world() -> tuple[int, int]:
    """Return (rank, number of ranks), (0, 1) without a process group."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def _attempt(action: Any) -> str:
    """Run `action` and return its failure as text, empty when it went well."""
    try:
        action()
    except _failures() as error:
        return _first_line(error)
    return ""


def _failures() -> tuple[type[BaseException], ...]:
    """Return what saving and loading may raise; torch's own exception is not an Exception."""
    from torch.distributed.checkpoint.api import CheckpointException

    return (Exception, CheckpointException)


def _first_line(error: BaseException) -> str:
    """Return the cause of a failure in one line; torch wraps it with each rank's traceback."""
    inner = getattr(error, "failures", None)
    if inner:
        cause = next(iter(inner.values()))
        error = cause[0] if isinstance(cause, tuple) else cause
    return f"{type(error).__name__}: {error}".split("\n")[0]


@contextlib.contextmanager
def _no_remark() -> Iterator[None]:
    """Silence torch's remark that it works in a single process, which is what is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _make_durable(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
