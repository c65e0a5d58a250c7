"""A data set that is looped over and knows its position."""

from __future__ import annotations

import atexit
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional

from cordee.core.errors import DataError, UsageError
from cordee.systems.data.node.read._base import SampleSource
from cordee.systems.data.node.read.batches.batches import BatchGrowth, Change, Work, blocks, in_line
from cordee.systems.data.node.read.batches.collate import chained, to_numpy
from cordee.systems.data.node.read.batches.prefetcher import BatchPrefetcher
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.read.deferred_close import ENDING
from cordee.systems.data.node.read.limits import find_limit
from cordee.systems.data.node.read.order.mixture import Mix
from cordee.systems.data.node.read.order.position import EpochCut, RankShares, SampleOrder, check_cut
from cordee.systems.data.node.read.order.ranks import usable_threads
from cordee.systems.data.node.read.order.state import SCHEMA, ReadState, checked
from cordee.systems.data.node.read.progress import Teller, summed

if TYPE_CHECKING:
    from cordee.systems.data.node.read.torch_sets import TorchLoader


class Dataset:
    """An iterable of batches with a position; made by `cordee.dataset`.

    One loop at a time: beginning another ends the one before. `state_dict` and `load_state_dict` make it what
    `cordee.checkpointer(model, optimizer, data=ds)` takes.
    """

    _ending = ENDING

    def __init__(
        self,
        source: SampleSource,
        name: str,
        place: str,
        batch: int,
        seed: int,
        shuffle: bool,
        last: str,
        work: Work,
        whose: Callable[[], tuple[int, int]],
        threads: Optional[int],
        prefetch_bytes: int,
    ) -> None:
        if source.size < 1:
            raise DataError("the data set is empty", given=name, next="`cordee data survey` says what lies there")
        self.source, self.name, self.size, self.batch = source, name, source.size, batch
        self.seed, self.shuffle = seed, shuffle
        self._last, self._work, self._whose = last, work, whose
        self._threads, self._prefetch_bytes = threads, prefetch_bytes
        self._given = 0
        self._inside: Optional[EpochCut] = None
        self._loop = 0
        self._own = ReadCounts()
        self._batches: Optional[Iterator[Any]] = None
        self._elsewhere, self._before = ReadCounts(), ReadCounts()
        self._teller = Teller(name, self.size)
        if self._teller.active:
            self._teller.limit_bytes_per_second = _measured_limit(source.identity, place)
            atexit.register(_tell_at_exit, weakref.ref(self))

    # The position

    @property
    def epoch(self) -> int:
        """The epoch, from 0: in a loop that of its batches, else the one that the next loop gives."""
        return self._inside.epoch if self._inside is not None else self._given // self.size

    @property
    def position(self) -> int:
        """How many samples of the epoch were given, to all ranks together."""
        return self._given - self.epoch * self.size

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the labels 0, 1, ... where the data set has them; else empty."""
        holder = getattr(self.source, "index", self.source)
        return tuple(getattr(holder, "classes", ()))

    @property
    def dropped(self) -> int:
        """How many samples `last="drop"` has left out, over all epochs of this process."""
        return self._teller.dropped

    def __len__(self) -> int:
        """Return how many batches a whole epoch has: the same on all ranks."""
        return self.cut(0).batches

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that the loop was given: seven values, the same on all ranks."""
        self._teller.save(self._given, self._own.samples)
        self._tell()
        epoch, position = divmod(self._given, self.size)
        identity = self.source.identity
        return ReadState(SCHEMA, epoch, position, self.seed, self.shuffle, identity, self.size).document()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on at a position that `state_dict` gave, whatever the number of ranks, workers and the batch were.

        The order goes on as it was: the state's seed counts, not the argument's, with a warning.

        Raises:
            DataError: it is the position in another data set, of a newer Cordée, or none at all.
        """
        found = checked(state, self.name, self.source.identity, self.size)
        if (found.seed, found.shuffle) != (self.seed, self.shuffle):
            warnings.warn(
                f"{self.name} continues in the order it began with, seed={found.seed}, shuffle={found.shuffle}, "
                f"instead of seed={self.seed}, shuffle={self.shuffle}: another order would repeat and miss samples",
                stacklevel=2,
            )
            self.seed, self.shuffle = found.seed, found.shuffle
        self._end_loop()
        self._given = found.epoch * self.size + found.position
        self._teller.load(self._given, self._own.samples)
        self._tell()

    # Loops

    def __iter__(self) -> Iterator[Any]:
        return self.loop()

    def __getitem__(self, number: Any) -> Any:
        raise UsageError(
            "a data set is looped over, not asked for samples by number",
            given=number,
            allowed="for batch in ds; ds.loader(); ds.map()[number]",
            next="where a torch DataLoader asked: ds.loader(workers=...) has workers, and is used as it is",
        )

    def loop(self, change: Optional[Change] = None) -> Iterator[Any]:
        """Yield the rest of the epoch as batches; `change` is done to every column, in the threads that decode."""
        work = self._work if change is None else self.work_with(change)

        def made(cut: EpochCut, rank: int) -> Iterator[Any]:
            unread = work.heavy and self._threads != 0 and self.source.in_parts
            growth = BatchGrowth(None if work.heavy and self._threads != 0 else 1.0)
            shares, most_bytes = RankShares(cut, rank), self._prefetch_bytes // 4
            read = blocks(self.source, self.order(), shares, most_bytes, growth, unread=unread)
            if self._threads == 0:
                return in_line(read, self.source, work)
            threads = self._threads or max(1, usable_threads() - 1)  # one processor is the loop's own
            return BatchPrefetcher(read, self.source, work, threads, self._prefetch_bytes, growth, unread=unread)

        return self.given(made)

    def numpy(self) -> Iterator[Any]:
        """Yield the rest of the epoch with every column as a NumPy array; what cannot be stacked as an array of objects."""
        return self.loop(to_numpy)

    def jax(self, sharding: Any = None) -> Iterator[Any]:
        """Yield the rest of the epoch as JAX arrays; columns of bytes and texts stay lists.

        Args:
            sharding: of the global batch: each process gives its part, and all columns must have as many samples on
                each. Default: arrays of this process.
        """
        from cordee.systems.data.node.read.batches.jax_arrays import jax_batches

        return jax_batches(self.loop(), sharding)

    def loader(self, workers: int = 0, *, pin_memory: bool = False, **settings: Any) -> "TorchLoader":
        """Return an iterable of batches as torch tensors; its loops are this data set's and move its position.

        Args:
            workers: processes that read and decode; 0: threads, which are faster where decoding lets go of the
                interpreter's lock, as Pillow, torchvision and NumPy do.
            pin_memory: tensors lie where a GPU fetches them fastest.
            settings: of torch's DataLoader, with workers: `prefetch_factor`, `multiprocessing_context`, `timeout`.
        """
        from cordee.systems.data.node.read.torch_sets import TorchLoader

        return TorchLoader(self, workers, pin_memory, settings)

    def iterable(self) -> Any:
        """Return a torch IterableDataset of batches for a DataLoader of your own with `batch_size=None`.

        The position does not see what a DataLoader's workers have given: say it by `ds.advance()` after every step, or
        use `loader`.
        """
        from cordee.systems.data.node.read.torch_sets import iterable_set

        return iterable_set(self)

    def map(self) -> Any:
        """Return a map-style torch Dataset: sample by number, decoded; `sampler` gives the numbers in the right order."""
        from cordee.systems.data.node.read.torch_sets import map_set

        return map_set(self)

    def sampler(self) -> Any:
        """Return a batch sampler for `DataLoader(ds.map(), batch_sampler=ds.sampler())`: this rank's rest of the epoch.

        A DataLoader asks for numbers ahead of the loop: say by `ds.advance()` what the loop was given.
        """
        from cordee.systems.data.node.read.torch_sets import batch_sampler

        return batch_sampler(self)

    def advance(self, batches: int = 1) -> None:
        """Count batches as given: for loops that Cordée does not see, those over `iterable` and `sampler`."""
        for _ in range(batches):
            cut = self.cut()
            if not cut.batches:
                self._pass_over(cut)
                cut = self.cut()
            if self._teller.begin is None:
                self._teller.begin = self._given
            self._move(cut, 0, self.rank())

    @property
    def counts(self) -> ReadCounts:
        """What this process gave, and what was read for it, its workers included."""
        total = summed([self.source.counts, self._before, self._elsewhere])
        total.samples, total.batches, total.wait_s = self._own.samples, self._own.batches, self._own.wait_s
        return total

    def close(self) -> None:
        """End the loop and give back files."""
        self._end_loop()
        self.source.close()

    # For the loops of torch_sets

    def cut(self, begin: Optional[int] = None) -> EpochCut:
        """Return the rest of the epoch at a position, default the present one, as global batches."""
        _, ranks = self._whose()
        check_cut(self.size, self.batch, ranks, self._last, self.name)
        return EpochCut(self._given if begin is None else begin, self.size, self.batch, ranks, self._last)

    def rank(self) -> int:
        """Return which part of a batch is this process's."""
        return self._whose()[0]

    def order(self) -> Any:
        """Return which sample stands at which position."""
        if isinstance(self.source, Mix):
            return self.source.order(self.seed, self.shuffle)
        return SampleOrder(self.size, self.seed, self.shuffle)

    def work_with(self, change: Optional[Change]) -> Work:
        """Return what becomes of samples, with `change` done to every column."""
        work = self._work
        return Work(work.decode, work.transform, chained(work.collate, change), work.skip_corrupt)

    def given(
        self, make: Callable[[EpochCut, int], Iterator[Any]], elsewhere: Optional[ReadCounts] = None
    ) -> Iterator[Any]:
        """Yield the batches that `make` makes of the rest of the epoch and count each as given when it is.

        Args:
            make: from the rest and the rank to the rank's batches, in their order, one for each of the rest's.
            elsewhere: counts that other processes add to while they make them.
        """
        self._end_loop()
        loop, cut, rank = self._loop, self.cut(), self.rank()
        if elsewhere is not None:
            self._before, self._elsewhere = summed([self._before, self._elsewhere]), elsewhere
        batches = self._batches = make(cut, rank)
        if self._teller.begin is None:
            self._teller.begin = self._given
        self._inside = cut
        try:
            for number in range(cut.batches):
                began = time.perf_counter()
                batch = next(batches)
                self._own.wait_s += time.perf_counter() - began
                self._move(cut, number, rank)
                yield batch
                if loop != self._loop:
                    raise UsageError(
                        f"the loop over {self.name} has ended: another was begun, or a position was loaded",
                        next="one loop at a time; to read a data set twice make it twice",
                    )
            if not cut.batches:
                self._pass_over(cut)
        finally:
            if not self._ending() and loop == self._loop:
                self._end_loop()

    def _end_loop(self) -> None:
        """End the loop that is under way, and its threads or processes: a source has one reader at a time."""
        self._loop += 1
        batches, self._batches, self._inside = self._batches, None, None
        close = getattr(batches, "close", None)
        if close is not None:
            close()
            self._tell()

    def _move(self, cut: EpochCut, number: int, rank: int) -> None:
        """Count a batch of the rest as given."""
        begin, end = cut.share(number, rank)
        self._own.samples += end - begin
        self._own.batches += 1
        self._teller.position = self._given = cut.bounds(number)[1]
        if number == cut.batches - 1:
            self._pass_over(cut)
        if self._teller.due:
            self._tell()

    def _pass_over(self, cut: EpochCut) -> None:
        """Move to the next epoch; what is left out of this one is counted."""
        self._teller.dropped += cut.dropped
        self._teller.position = self._given = cut.end

    def _tell(self) -> None:
        self._teller.tell(self.counts)


def _measured_limit(identity: str, place: str) -> Optional[float]:
    """Return what `cordee data bench` measured of a place, in bytes per second; None: nobody has measured it."""
    try:
        limit = find_limit(identity, place) if place else None
    except OSError:
        return None
    return limit.bytes_per_s if limit else None


def _tell_at_exit(reference: "weakref.ref[Dataset]") -> None:
    ds = reference()
    if ds is not None:
        ds._tell()
