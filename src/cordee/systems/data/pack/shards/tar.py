"""The packed format: WebDataset tar shards and one index beside them.

Which samples go into which shard is decided before anything is written, from the sizes in the plan; so the result is the
same for any number of workers, and a shard that is whole is never looked at again.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from cordee.core.errors import DataError, UsageError
from cordee.core.units import format_size
from cordee.systems.data.node.shards.index import INDEX_NAME, Shard, write_index
from cordee.systems.data.pack._base import PackOptions, PackResult, PackTarget, Target, Tell, Unreadable
from cordee.systems.data.pack.already_packed import finished, keep_record
from cordee.systems.data.pack.places import open_place, refuse_file, work_folder
from cordee.systems.data.pack.shards.merge import merge_parts
from cordee.systems.data.pack.shards.split import cut
from cordee.systems.data.pack.shards.writer import ShardWriter
from cordee.systems.data.pack.state import PackState
from cordee.systems.data.pack.unreadable import refuse_unreadable
from cordee.systems.data.pack.workers import Jobs, run_all
from cordee.systems.data.pack.write_faults import writing_to

if TYPE_CHECKING:
    from cordee.systems.data.pack._base import PackPlan

_ELSEWHERE = "choose another place with --to"


class ShardsTarget(Target):
    """Packs to shards and an index, in a folder or a store; what a shard is, is said by those below.

    Attributes:
        kind: after `--as`.
        made: what the files are called that it makes, beside the index.
    """

    kind: str
    made: re.Pattern[str]

    def cut(self, plan: PackPlan, options: PackOptions) -> list[tuple[int, int]]:
        """Return (first, last + 1) of each shard's samples."""
        raise NotImplementedError

    def packing(
        self,
        plan: PackPlan,
        shards: list[tuple[int, int]],
        name: str,
        place: PackTarget,
        state: PackState,
        options: PackOptions,
    ) -> Packing:
        """Return what the workers do."""
        raise NotImplementedError

    def finish(self, plan: PackPlan, shards: list[tuple[int, int]], place: PackTarget, state: PackState) -> None:
        """Put what describes all shards in its place; the index follows."""

    def pack(self, plan: PackPlan, to: str, options: PackOptions, tell: Tell) -> PackResult:
        with writing_to(to):
            return self._pack(plan, to, options, tell)

    def _pack(self, plan: PackPlan, to: str, options: PackOptions, tell: Tell) -> PackResult:
        began = time.monotonic()
        place = open_place(to)
        name = options.name or plan.name
        about = {
            "target": self.kind,
            "fingerprint": plan.fingerprint,
            "shard_bytes": options.shard_bytes,
            "name": name,
        }
        if _is_finished(place, to, options, self.made):
            return finished(plan, to, about, place.sizes())
        state = PackState(work_folder(to), about, options.restart)
        try:
            if INDEX_NAME in place.sizes():  # killed when all was done, before this state was removed
                state.remove()
                return finished(plan, to, about, place.sizes())
            shards = self.cut(plan, options)
            packing = self.packing(plan, shards, name, place, state, options)
            sizes = place.sizes()
            todo = [number for number in range(len(shards)) if state.fresh or not state.whole(number, sizes)]
            resumed = len(shards) - len(todo)
            before = _done_before(state, sorted(set(range(len(shards))) - set(todo)))
            _check_space(plan, to, shards, todo)
            try:
                run_all(
                    todo,
                    packing.work,
                    options.workers,
                    plan.origin.threads or place.threads,
                    lambda samples, size: tell(before[0] + samples, before[1] + size),
                )
            except Unreadable as fault:
                refuse_unreadable(plan, fault)
            plan.origin.check()
            self.finish(plan, shards, place, state)
            keep_record(about, state, place)
            packed = merge_parts(plan, state, len(shards), to, name, place)
            state.remove()
        finally:
            state.close()
        packed.seconds, packed.resumed_shards = time.monotonic() - began, resumed
        return packed


class Packing:
    """What every worker of one packing does."""

    def __init__(
        self,
        plan: PackPlan,
        shards: list[tuple[int, int]],
        name: str,
        place: PackTarget,
        state: PackState,
        options: PackOptions,
    ) -> None:
        self.plan, self.shards, self.name = plan, shards, name
        self.place, self.state, self.options = place, state, options

    def work(self, jobs: Jobs, add: Tell) -> None:
        """Write shards until none is left. While one is written, the one before it reaches the disk."""
        ending: Future[None] | None = None
        with ThreadPoolExecutor(1) as background:
            while (number := jobs.take()) is not None:
                finish = self.write(number, add)
                if ending is not None:
                    ending.result()
                ending = background.submit(finish)
            if ending is not None:
                ending.result()

    def write(self, number: int, add: Tell) -> Callable[[], None]:
        """Write one shard; return what makes it durable and gives it its name."""
        start, stop = self.shards[number]
        partial = self.state.partial(number)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        writer = ShardWriter(descriptor, self.plan, self.options.skip_unreadable, add)
        try:
            if number == 0:
                writer.folders(self.plan.empty_folders)
            writer.write(self.plan.samples(start, stop))
            size = writer.finish()
        except BaseException:
            writer.close()
            os.close(descriptor)
            partial.unlink(missing_ok=True)
            raise

        writer.close()

        def finish() -> None:
            try:
                if self.options.durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            name = f"{self.name}-{number:06d}.tar"
            self.place.take(str(partial), name)
            self.state.note_left_out(number, writer.left_out)
            write_index(
                self.state.part(number),
                name=self.name,
                fields=self.plan.fields,
                classes=(),
                shards=[Shard(name, size, writer.samples)],
                columns=writer.columns(),
            )

        return finish


class TarTarget(ShardsTarget):
    """Packs to WebDataset's tar shards."""

    kind = "webdataset"
    made = re.compile(r".*-\d{6}\.tar", re.DOTALL)

    def cut(self, plan: PackPlan, options: PackOptions) -> list[tuple[int, int]]:
        return cut(plan, options.shard_bytes)

    def packing(
        self,
        plan: PackPlan,
        shards: list[tuple[int, int]],
        name: str,
        place: PackTarget,
        state: PackState,
        options: PackOptions,
    ) -> Packing:
        return Packing(plan, shards, name, place, state, options)


TARGET = TarTarget()


def _is_finished(place: PackTarget, to: str, options: PackOptions, made: re.Pattern[str]) -> bool:
    """Say whether a packed data set is there; empty the place of it where that was asked for.

    Raises:
        UsageError: it holds something else.
    """
    refuse_file(to)
    there = place.sizes()
    begun = work_folder(to).exists()
    if there and not begun and INDEX_NAME not in there:
        raise UsageError("the folder holds something else", given=to, allowed="a new or empty folder", next=_ELSEWHERE)
    if options.restart:
        place.remove(INDEX_NAME)  # first: without it, nothing there counts as whole
        for name in there:
            if made.fullmatch(name):
                place.remove(name)
    return INDEX_NAME in there and not begun and not options.restart


def _done_before(state: PackState, shards: list[int]) -> tuple[int, int]:
    parts = [part for part in map(state.open_part, shards) if part is not None]
    return sum(part.samples for part in parts), sum(part.bytes for part in parts)


def _check_space(plan: PackPlan, to: str, shards: list[tuple[int, int]], todo: list[int]) -> None:
    """Refuse to begin where the result cannot fit."""
    if not todo or "://" in to:
        return
    free = shutil.disk_usage(to).free
    needed = plan.disk_bytes * len(todo) // len(shards)
    if needed > free:
        raise DataError(
            "there is not enough space for the data set",
            given=f"{to}: {format_size(free)} free",
            allowed=f"at least {format_size(needed)}",
            next="make space, or pack to another file system",
        )
