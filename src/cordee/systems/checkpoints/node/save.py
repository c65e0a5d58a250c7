"""Saving and restoring a training: model, optimizer, random generators and the position in the data, all or nothing.

A checkpoint is written by all ranks into a hidden folder with PyTorch's distributed checkpoint, made durable, described
by a manifest, and renamed. Whatever is killed, and whenever: the folder under its final name is complete, and the older
one is there until then. The manifest names the run: what another run made is neither restored nor replaced nor removed.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from typing import Any, Iterator, Mapping, NamedTuple, Optional, Union

from cordee.core.errors import CheckpointError
from cordee.runs.checkpoint import Checkpoint
from cordee.systems.checkpoints.node import dcp_reader, random_state, save_facts
from cordee.systems.checkpoints.node.background import BackgroundSaves, SaveInFlight
from cordee.systems.checkpoints.node.folder import read_manifest
from cordee.systems.checkpoints.node.layout import expected_bytes
from cordee.systems.checkpoints.node.manifest import Completion, complete
from cordee.systems.checkpoints.node.ranks import agreed, attempt, gathered, world
from cordee.systems.checkpoints.node.sums import verify, written_sums
from cordee.systems.checkpoints.node.training_folder import CheckpointPlace, discard
from cordee.systems.checkpoints.node.write_rate import AUTO, OFF, Pace

Path = Union[str, "os.PathLike[str]"]


def checkpointer(
    model: Any = None,
    optimizer: Any = None,
    *,
    data: Any = None,
    extra: Optional[Mapping[str, Any]] = None,
    folder: Optional[Path] = None,
    keep: Optional[int] = None,
    every_s: Optional[float] = None,
    every_steps: Optional[int] = None,
    asynchronous: Optional[bool] = None,
    pace: Optional[Pace] = None,
    milestones: Optional[int] = None,
) -> Checkpointer:
    """Return a Checkpointer; every rank makes one with the same arguments.

    Args:
        model: a module, also wrapped in DDP or FSDP.
        optimizer: one optimizer or a list of them.
        data: what knows the position in the data: an object with `state_dict` and `load_state_dict`.
        extra: more such objects by name, a learning-rate scheduler for example.
        folder: where checkpoints lie; default CORDEE_CHECKPOINT_DIR, else `checkpoints`.
        keep: how many complete checkpoints of this run stay: those that were saved last; default CORDEE_CHECKPOINT_KEEP, else 3.
        every_s: seconds between checkpoints for `due`; default CORDEE_CHECKPOINT_EVERY.
        every_steps: steps between checkpoints for `due`; wins over `every_s`.
        asynchronous: whether a process beside the training writes what `save` has copied; default
            CORDEE_CHECKPOINT_ASYNCHRONOUS, else not.
        pace: of that writing: `auto`, `off`, or bytes per second; default CORDEE_CHECKPOINT_PACE, else `auto`.
        milestones: the first checkpoint of every so many steps stays, too; default CORDEE_CHECKPOINT_MILESTONES, else none.
    """
    told = os.environ
    place = os.path.abspath(folder or told.get("CORDEE_CHECKPOINT_DIR") or "checkpoints")
    seconds = every_s if every_s is not None else float(told.get("CORDEE_CHECKPOINT_EVERY") or 0) or None
    wanted = asynchronous if asynchronous is not None else told.get("CORDEE_CHECKPOINT_ASYNCHRONOUS") == "1"
    speed = _pace(pace if pace is not None else told.get("CORDEE_CHECKPOINT_PACE") or AUTO)
    kept = int(told.get("CORDEE_CHECKPOINT_KEEP") or 3) if keep is None else keep
    every = int(told.get("CORDEE_CHECKPOINT_MILESTONES") or 0) if milestones is None else milestones
    retention = Retention(kept, every)
    return Checkpointer(
        model, optimizer, data, dict(extra or {}), place, retention, seconds, every_steps, speed if wanted else None
    )


def _pace(given: Pace) -> Pace:
    """Return a pace as it was given, numbers in a text as numbers."""
    if given in (AUTO, OFF):
        return given
    try:
        per_s = float(given)
    except (TypeError, ValueError):
        per_s = 0.0
    if not 0 < per_s < float("inf"):
        raise CheckpointError("this is no pace", given=given, allowed="auto, off, or bytes per second above 0")
    return per_s


class Retention(NamedTuple):
    """Which checkpoints of a run stay: so many that were saved last, and the first of every so many steps (0: none)."""

    keep: int
    milestones: int = 0


class Checkpointer:
    """Saves and restores one training; made by `cordee.checkpointer`."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        data: Any,
        extra: dict[str, Any],
        folder: str,
        retention: Retention,
        every_s: Optional[float],
        every_steps: Optional[int],
        pace: Optional[Pace],
    ) -> None:
        if retention.keep < 1:
            raise CheckpointError("at least one checkpoint must stay", given=retention.keep, allowed="keep >= 1")
        if retention.milestones < 0:
            raise CheckpointError("milestones are steps", given=retention.milestones, allowed="0 or more")
        self._model, self._optimizer = model, optimizer
        self._positions = dict(extra)
        if data is not None:
            self._positions["data"] = data
        self._folder, self._retention = folder, retention
        self._every_s, self._every_steps = every_s, every_steps
        self._saved_at = time.monotonic()
        self._place = CheckpointPlace(folder)
        self._told: set[str] = set()
        self._background = None
        if pace is not None and hasattr(os, "memfd_create"):
            self._background = BackgroundSaves(
                folder, pace, save_facts.tell_beside, self._remark, lambda: expected_bytes(model, optimizer)
            )

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
        self._landed()
        if world()[0] == 0:
            self._place.put_back()
        self._place.goes_on = True
        candidates = agreed([found.path for found in self._place.restorable()])
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
        if self._background is not None:
            self._background.saw(step)
        if self._every_steps:
            return (step + 1) % self._every_steps == 0
        if self._every_s is None:
            return False
        late = time.monotonic() - self._saved_at >= self._every_s
        return bool(agreed(late))

    def save(self, step: int) -> str:
        """Save the state after `step`; every rank calls this. Returns the checkpoint's path.

        The training waits until the checkpoint is complete or, with `asynchronous`, until all of it is copied in memory; it
        then has its path a little later, and a save that is still under way is waited for first. How long that took, and how
        many bytes each rank wrote, goes into the run's telemetry.

        Raises:
            CheckpointError: it could not be written; the older ones are untouched.
        """
        began = time.monotonic()
        beside = self._landed() == "" and self._background is not None
        rank, _ = world()
        name = f"step-{step:09d}"
        # One save at a time goes to shared storage; one that comes meanwhile stays on the nodes.
        drains = not beside or self._background is None or self._background.draining is None
        stores = beside and drains and self._background is not None and self._background.storing is None
        partial, drains, stores = agreed((self._place.fresh(name), drains, stores))
        problem = ""
        if rank == 0 and drains:
            problem = attempt(lambda: self._place.begin(partial))
        self._raise_together(problem, name, partial)
        interval_s, self._saved_at = self._interval_s(began), began
        if beside:
            target = self._write_beside(step, name, partial, began, interval_s, (drains, stores))
        else:
            target = self._write(step, name, partial, began)
        self._place.saved.add(target)
        self._saved_at = time.monotonic()
        return target

    def wait(self) -> None:
        """Wait until the save under way is complete, if there is one; every rank calls this.

        Raises:
            CheckpointError: it could not be completed; the older ones are untouched.
        """
        problem = self._landed()
        if not problem and self._background is not None:
            problem = next(filter(None, gathered(self._background.settle())), "")
        if problem:
            raise CheckpointError(problem, given=self._folder, next="make room, and save again")

    def _write(self, step: int, name: str, partial: str, began: float) -> str:
        """Write a checkpoint while the training waits."""
        import torch.distributed.checkpoint as dcp

        rank, _size = world()
        with _no_remark():
            problem = attempt(lambda: dcp.save(self._state(), checkpoint_id=partial))
        problem = problem or attempt(lambda: self._save_rank(os.path.join(partial, f"rank-{rank}.pt")))
        self._raise_together(problem, name, partial)
        sums: dict[str, int] = {}
        problem = attempt(lambda: sums.update(written_sums(partial, rank)))
        for others in gathered(sums):
            sums.update(others)
        self._raise_together(problem, name, partial)
        made: list[str] = []
        if rank == 0:
            what = self._completion(step, name)
            problem = attempt(lambda: made.append(complete(partial, what, sums, self._place, durable=False)))
        self._raise_together(problem, name, partial)
        target = str(agreed(made[0] if made else ""))
        save_facts.tell(step, time.monotonic() - began, save_facts.written_bytes(target, rank))
        return target

    def _write_beside(
        self, step: int, name: str, partial: str, began: float, interval_s: Optional[float], goes_on: tuple[bool, bool]
    ) -> str:
        """Copy the state and have it written while the training goes on; returns the path that it will have."""
        background = self._background
        assert background is not None
        rank, _size = world()
        state: list[dict[str, Any]] = []
        self._raise_together(attempt(lambda: state.append(self._state())), name, partial)
        with _no_remark():
            problem = attempt(lambda: background.snapshot(state[0], partial))
        problem = problem or attempt(lambda: background.keep(f"rank-{rank}.pt", self._save_rank))
        self._raise_together(problem, name, partial)
        flight = SaveInFlight(step, began, time.monotonic() - began, *goes_on)
        what = self._completion(step, name)
        problem = attempt(lambda: background.hand_over(flight, partial, interval_s, rank, what, self._place))
        if any(gathered(problem)):
            background.give_up()
        self._raise_together(problem, name, partial)
        if background.lack and background.lack not in self._told:
            self._told.add(background.lack)
            text = f"rank {rank} wrote step {step} while the training waited: {background.lack}"
            what_next = (
                "ask for more memory, or for more ranks to share the state, or leave out [checkpoint] asynchronous"
            )
            save_facts.tell_finding("checkpoint-synchronous", text, what_next)
        save_facts.tell_saved(step)
        return os.path.join(self._folder, name)

    def _landed(self) -> str:
        """Wait for the save under way, on all ranks; returns what went wrong with it, which is told to the run."""
        flight = self._background.flight if self._background is not None else None
        if self._background is None or flight is None:
            return ""
        problems = [text for text in gathered(self._background.finish_part()) if text]
        target = ""
        if problems:
            self._background.give_up()
        elif self._background.tiered:
            target = os.path.join(self._folder, f"step-{flight.step:09d}")
        elif world()[0] == 0:
            target, problem = self._background.finish()
            problems = [problem] if problem else []
        self._background.landed()
        target, problems = agreed((target, problems))
        if not problems:
            self._place.saved.add(target)
            return ""
        newest = self.newest()
        older = f"{newest.name} is complete" if newest else "there is no older one"
        text = f"step {flight.step} could not be saved beside the training: {problems[0]}; {older}"
        if world()[0] == 0:
            warnings.warn(text, RuntimeWarning, stacklevel=3)
            save_facts.tell_finding("checkpoint-failed", text, "make room; the next save is waited for")
        return text

    def _remark(self, rule: str, text: str) -> None:
        """Have the run record once what is not as it should be."""
        if rule not in self._told:
            self._told.add(rule)
            save_facts.tell_finding(rule, text, "see [checkpoint] tiers; make room on nodes and on shared storage")

    def _completion(self, step: int, name: str) -> Completion:
        import torch

        return Completion(name, step, world()[1], str(torch.__version__), *self._retention)

    def _interval_s(self, now: float) -> Optional[float]:
        """Return how long it is until the next save: as was asked for, else as it was since the one before."""
        quiet_s = self._background.steps.quiet_s if self._background is not None else 0.0
        if self._every_steps and quiet_s:
            return self._every_steps * quiet_s
        return self._every_s if self._every_s and not self._every_steps else now - self._saved_at

    def _state(self) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        if self._model is None:
            return {}
        bare = [name for name, tensor in self._model.named_parameters() if tensor.is_meta]
        if bare:
            raise ValueError(f"{bare[0]} has no data: it is on the meta device")
        model, optimizer = get_state_dict(self._model, self._optimizer if self._optimizer is not None else [])
        return {"model": model, "optimizer": optimizer}

    def _tried(self, path: str) -> tuple[int, str]:
        """Return the step of a checkpoint that all ranks have loaded, or what stood against it on the first of them."""
        rank, size = world()
        steps = [-1]
        for action in (lambda: verify(path, rank, size), lambda: steps.append(self._load(path))):
            problems = [text for text in gathered(attempt(action)) if text]
            if problems:
                return -1, problems[0]
        return steps[-1], ""

    def _tell(self, failures: list[str], then: str) -> None:
        if world()[0] == 0:
            for failure in failures:
                what = "move it away, and look at the file system that damaged it"
                save_facts.tell_finding("checkpoint-damaged", failure + then, what)

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
        rank, size = world()
        if size != manifest["world_size"]:
            warnings.warn(
                f"saved by {manifest['world_size']} ranks, restored by {size}: random generators start anew, "
                "positions are those of rank 0",
                stacklevel=6,
            )
        same = size == manifest["world_size"]
        own = torch.load(os.path.join(path, f"rank-{rank if same else 0}.pt"), weights_only=True)
        for name, holder in self._positions.items():
            if name in own["positions"]:
                holder.load_state_dict(own["positions"][name])
        if same:
            random_state.restore(own["random"])
        return int(manifest["step"])

    def _save_rank(self, file: Any) -> None:
        """Write what is of this rank alone into a file, or a path."""
        import torch

        positions = {name: holder.state_dict() for name, holder in self._positions.items()}
        torch.save({"random": random_state.capture(), "positions": positions}, file)

    def _raise_together(self, problem: str, name: str, partial: str) -> None:
        """Let all ranks fail when one did, instead of leaving the others waiting; what was written goes."""
        problems = [text for text in gathered(problem) if text]
        if problems:
            if world()[0] == 0:
                discard(partial)
            newest = self.newest()
            raise CheckpointError(
                f"{name} could not be saved: {problems[0]}",
                given=self._folder,
                next=f"make room; {newest.name} is complete" if newest else "make room; there is no older one",
            )


@contextlib.contextmanager
def _no_remark() -> Iterator[None]:
    """Silence torch's remark that it works in a single process, which is what is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
