"""Drives a format: shards written by several workers, resumed after a kill, and one index beside them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from cordee.systems.data.node.shards.entries import Sample
from cordee.systems.data.node.shards.index import Shard, write_index
from cordee.systems.data.pack._base import PackOptions, PackTarget, Tell
from cordee.systems.data.pack.formats._base import PackFormat, Placed, Which
from cordee.systems.data.pack.formats.content import without_unreadable
from cordee.systems.data.pack.formats.names import NAMES, names_of
from cordee.systems.data.pack.places import sync
from cordee.systems.data.pack.shards.tar import Packing, ShardsTarget
from cordee.systems.data.pack.state import PackState

if TYPE_CHECKING:
    from cordee.systems.data.pack._base import PackPlan


class FormatTarget(ShardsTarget):
    """Packs to shards of a format."""

    def __init__(self, made: PackFormat) -> None:
        self.format, self.kind, self.made = made, made.name, re.compile(f"{made.files}|{re.escape(NAMES)}")

    def cut(self, plan: PackPlan, options: PackOptions) -> list[tuple[int, int]]:
        return self.format.cut(plan, options.shard_bytes)

    def packing(
        self,
        plan: PackPlan,
        shards: list[tuple[int, int]],
        name: str,
        place: PackTarget,
        state: PackState,
        options: PackOptions,
    ) -> Packing:
        return _FormatPacking(self.format, plan, shards, name, place, state, options)

    def finish(self, plan: PackPlan, shards: list[tuple[int, int]], place: PackTarget, state: PackState) -> None:
        for name, content in self.format.finish(plan, shards).items():
            _put(place, state, name, content)
        names = names_of(plan)
        if names is not None:
            _put(place, state, NAMES, names)


class _FormatPacking(Packing):
    def __init__(
        self,
        made: PackFormat,
        plan: PackPlan,
        shards: list[tuple[int, int]],
        name: str,
        place: PackTarget,
        state: PackState,
        options: PackOptions,
    ) -> None:
        super().__init__(plan, shards, name, place, state, options)
        self.format = made

    def write(self, number: int, add: Tell) -> Callable[[], None]:
        """Write one shard; return what makes it durable and gives it its name."""
        partial = self.state.partial(number)
        rows: dict[bytes, int] = {}

        def once(samples: list[Sample]) -> tuple[Placed, list[Sample]]:
            which = Which(self.shards, number, [rows[sample.key] for sample in samples])
            return self.format.write(str(partial), self.plan, samples, which, add), samples

        try:
            samples = list(self.plan.samples(*self.shards[number]))
            rows.update((sample.key, row) for row, sample in enumerate(samples))
            (placed, written), left_out = without_unreadable(self.plan, samples, self.options.skip_unreadable, once)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

        def finish() -> None:
            if self.options.durable:
                sync(str(partial))
            name = self.format.shard(self.name, number)
            size = partial.stat().st_size
            self.place.take(str(partial), name)
            self.state.note_left_out(number, left_out)
            write_index(
                self.state.part(number),
                name=self.name,
                fields=self.plan.fields,
                classes=(),
                shards=[Shard(name, size, len(written))],
                columns=placed.columns(written),
            )

        return finish


def _put(place: PackTarget, state: PackState, name: str, content: bytes) -> None:
    partial = state.folder / f"{name.replace('/', '-')}.partial"
    partial.write_bytes(content)
    sync(str(partial))
    place.take(str(partial), name)
