"""The data set as torch's people know it: a loader with worker processes, an IterableDataset, a map-style Dataset, a sampler."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, Iterator, Optional, Protocol, Union

from cordee.core.errors import CordeeError, CorruptDataError, DataError, UsageError
from cordee.systems.data.node.read._base import SampleSource
from cordee.systems.data.node.read.batches.batches import Change, Ordering, RawBatch, Work, blocks, in_line
from cordee.systems.data.node.read.batches.collate import to_torch
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.read.order.position import EpochCut, RankShares
from cordee.systems.data.node.read.progress import summed

_OURS = (
    "batch_size",
    "sampler",
    "batch_sampler",
    "shuffle",
    "drop_last",
    "collate_fn",
    "persistent_workers",
    "num_workers",
)
# What a forkserver imports once for all workers, which take seconds to start without.
_PRELOADED = [
    "torch.utils.data",
    "numpy",
    "cordee.systems.data.node.read.sources",
    "cordee.systems.data.node.read.torch_sets",
]


class Looped(Protocol):
    """What is used here of the data set that is looped over; see `cordee.systems.data.node.read.loop.Dataset`."""

    source: SampleSource
    name: str

    def __len__(self) -> int: ...

    def loop(self, change: Optional[Change] = None) -> Iterator[Any]: ...

    def given(
        self, make: Callable[[EpochCut, int], Iterator[Any]], elsewhere: Optional[ReadCounts] = None
    ) -> Iterator[Any]: ...

    def cut(self, begin: Optional[int] = None) -> EpochCut: ...

    def rank(self) -> int: ...

    def order(self) -> Any: ...

    def work_with(self, change: Optional[Change]) -> Work: ...


@dataclass(frozen=True)
class Rest:
    """What a worker process needs to make every `workers`-th of a rank's batches."""

    source: SampleSource
    order: Ordering
    work: Work
    cut: EpochCut
    rank: int

    def batches(self, worker: int, workers: int) -> Iterator[Any]:
        """Return the batches worker, worker + workers, ... of the rest, made in line."""
        return in_line(
            blocks(self.source, self.order, RankShares(self.cut, self.rank, worker, workers)), self.source, self.work
        )


class TorchLoader:
    """Batches as torch tensors, made by threads or worker processes; made by `Dataset.loader`.

    Worker w of W makes the rank's batches w, w + W, ...: the order is the same for any number of workers.

    Workers are forked on Linux, whatever Python's default is, unless the program or the settings say otherwise: they begin
    at once, with what this process has imported and opened, and scripts need no main guard. They inherit no thread, so
    nothing that they use may be locked by one: a source makes its locks, files and threads anew, torch computes in one
    thread, and no worker touches a GPU. The loop before is ended first, with its threads.
    """

    def __init__(self, ds: Looped, workers: int, pin_memory: bool, settings: dict[str, Any]) -> None:
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
            raise UsageError("workers is no number of processes", given=workers, allowed="an integer from 0")
        wrong = sorted(set(settings) & set(_OURS))
        if wrong:
            raise UsageError(
                f"{', '.join(wrong)} is decided by cordee.dataset",
                given=", ".join(f"{name}={settings[name]!r}" for name in wrong),
                allowed="prefetch_factor, multiprocessing_context, timeout and what else says how workers run",
            )
        if settings and not workers:
            raise UsageError(
                "without workers there is no DataLoader that settings are for", given=", ".join(sorted(settings))
            )
        if workers:
            settings = {"multiprocessing_context": _way_to_start(), **settings}
            if settings["multiprocessing_context"] == "forkserver":
                multiprocessing.set_forkserver_preload(_PRELOADED)
        self._ds, self._workers, self._pin_memory, self._settings = ds, workers, pin_memory, settings

    def __len__(self) -> int:
        """Return how many batches a whole epoch has."""
        return len(self._ds)

    def __iter__(self) -> Iterator[Any]:
        if not self._workers:
            return self._ds.loop(_Pinned() if self._pin_memory else to_torch)
        return self._in_workers()

    def _in_workers(self) -> Iterator[Any]:
        counts = ReadCounts()

        def made(cut: EpochCut, rank: int) -> Iterator[Any]:
            ds = self._ds
            rest = Rest(ds.source, ds.order(), ds.work_with(to_torch), cut, rank)
            return _from_workers(rest, counts, self._workers, self._pin_memory, self._settings)

        return self._ds.given(made, elsewhere=counts)


def _way_to_start() -> Optional[str]:
    """Return how worker processes start: forked on Linux unless the program chose; None: as Python does by itself."""
    default = multiprocessing.get_all_start_methods()[0]
    chosen = multiprocessing.get_start_method(allow_none=True) not in (None, default)
    return "fork" if sys.platform == "linux" and not chosen else None


def _from_workers(
    rest: Rest, counts: ReadCounts, workers: int, pin_memory: bool, settings: dict[str, Any]
) -> Iterator[Any]:
    from torch.utils.data import DataLoader

    loader = DataLoader(
        _worker_set()(rest),
        batch_size=None,
        num_workers=workers,
        pin_memory=pin_memory,
        collate_fn=_as_it_is,
        **settings,
    )
    latest: dict[int, ReadCounts] = {}
    items = iter(loader)
    is_ending = sys.is_finalizing
    try:
        for batch, worker, read in items:
            if isinstance(batch, CordeeError):
                raise batch
            latest[worker] = read
            counts.__dict__.update(summed(list(latest.values())).__dict__)
            yield batch
    except (ConnectionError, EOFError) as error:
        raise DataError(
            f"a worker process of the loader has ended: {error or type(error).__name__}",
            next="look for the reason above: out of memory, /dev/shm full, or killed; fewer workers need less of both",
        ) from error
    finally:
        # By itself it ends its workers when nothing refers to it any more, and a traceback does so for long.
        end_workers = getattr(items, "_shutdown_workers", None)
        if end_workers is not None and not is_ending():
            with contextlib.suppress(RuntimeError):  # one that dies at its end is not missed any more
                end_workers()


def _as_it_is(item: Any) -> Any:
    return item


class _Pinned:
    """Makes tensors of memory that the GPU fetches from by itself; as DataLoader's, it does nothing where there is no GPU."""

    def __init__(self) -> None:
        import torch

        self._device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def __call__(self, column: Any) -> Any:
        import torch

        tensor = to_torch(column)
        if self._device is None:
            return tensor
        if (
            torch.cuda.current_device() != self._device
        ):  # a new thread begins with the first GPU, which is another rank's
            torch.cuda.set_device(self._device)
        if isinstance(tensor, list):
            return [value.pin_memory() if hasattr(value, "pin_memory") else value for value in tensor]
        return tensor.pin_memory() if hasattr(tensor, "pin_memory") else tensor


@lru_cache(maxsize=None)
def _worker_set() -> Any:
    """Return the class of what worker processes iterate over; made when torch is needed, and known by name to spawn."""
    from torch.utils.data import IterableDataset, get_worker_info

    class WorkerSet(IterableDataset):  # type: ignore[misc]
        """A rank's batches with the worker's number and what it has read so far."""

        def __init__(self, rest: Rest) -> None:
            self._rest = rest

        def __reduce__(self) -> Any:
            return _made_worker_set, (self._rest,)

        def __iter__(self) -> Iterator[Any]:
            info = get_worker_info()
            before = summed([self._rest.source.counts])
            batches = self._rest.batches(info.id, info.num_workers)
            while True:
                try:
                    batch = next(batches, None)
                except CordeeError as error:
                    yield error, info.id, before
                    return
                if batch is None:
                    return
                yield batch, info.id, _difference(self._rest.source.counts, before)

    return WorkerSet


def _made_worker_set(rest: Rest) -> Any:
    return _worker_set()(rest)


def _difference(now: ReadCounts, before: ReadCounts) -> ReadCounts:
    """Return what was read since; a forked worker begins with its parent's counts."""
    found = summed([now])
    for name, value in before.__dict__.items():
        if name == "sizes":
            found.sizes = [one - other for one, other in zip(found.sizes, value)]
        else:
            setattr(found, name, getattr(found, name) - value)
    return found


def iterable_set(ds: Looped) -> Any:
    """Return a torch IterableDataset of the batches of `ds`; see `Dataset.iterable`."""
    return _iterable_class()(ds)


@lru_cache(maxsize=None)
def _iterable_class() -> Any:
    from torch.utils.data import IterableDataset, get_worker_info

    class Batches(IterableDataset):  # type: ignore[misc]
        """This rank's batches of the rest of the epoch, as tensors."""

        def __init__(self, ds: Union[Looped, Rest]) -> None:
            self._ds = ds

        def __reduce__(self) -> Any:
            return _made_batches, (_rest(self._ds),)

        def __len__(self) -> int:
            return _rest(self._ds).cut.batches

        def __iter__(self) -> Iterator[Any]:
            _refuse_second_batching(sys._getframe(1).f_locals)
            info = get_worker_info()
            if info is not None:
                return _rest(self._ds).batches(info.id, info.num_workers)
            return _rest(self._ds).batches(0, 1) if isinstance(self._ds, Rest) else self._ds.loop(to_torch)

    return Batches


def _made_batches(rest: Rest) -> Any:
    return _iterable_class()(rest)


def _rest(ds: Union[Looped, Rest]) -> Rest:
    """Return the rest of the epoch from where the data set is now."""
    return ds if isinstance(ds, Rest) else Rest(ds.source, ds.order(), ds.work_with(to_torch), ds.cut(), ds.rank())


def _refuse_second_batching(caller: dict[str, Any]) -> None:
    """Raise if torch's DataLoader, which asks for an iterator, is about to make batches of our batches."""
    if caller.get("auto_collation") is True:
        raise UsageError(
            "the DataLoader would make batches of batches",
            given="a batch_size",
            allowed="DataLoader(ds.iterable(), batch_size=None): the batches are cordee.dataset's",
        )


def map_set(ds: Looped) -> Any:
    """Return a map-style torch Dataset of the samples of `ds`; see `Dataset.map`."""
    return _made_samples(ds.source, ds.work_with(None))


def _made_samples(source: SampleSource, work: Work) -> Any:
    return _map_class()(source, work)


@lru_cache(maxsize=None)
def _map_class() -> Any:
    from torch.utils.data import Dataset as TorchDataset

    class Samples(TorchDataset):  # type: ignore[misc]
        """Samples by number, decoded and transformed; those skipped as corrupt are missing from a batch."""

        def __init__(self, source: SampleSource, work: Work) -> None:
            self._source, self._work = source, work

        def __reduce__(self) -> Any:
            return _made_samples, (self._source, self._work)

        def __len__(self) -> int:
            return self._source.size

        def __getitem__(self, number: int) -> Any:
            found = self.__getitems__([int(number)])
            if not found:
                raise CorruptDataError("the sample is corrupt", given=self._source.describe(int(number)))
            return found[0]

        def __getitems__(self, numbers: list[int]) -> list[Any]:
            return samples_by_number(self._source, self._work, numbers)

    return Samples


def samples_by_number(source: SampleSource, work: Work, numbers: list[int]) -> list[Any]:
    """Return samples decoded and transformed, without those that are skipped as corrupt; negative numbers count from the end.

    Raises:
        IndexError: there is no such sample.
    """
    import numpy

    wanted = numpy.asarray(numbers, numpy.int64)
    if len(wanted) and (wanted.min() < -source.size or wanted.max() >= source.size):
        raise IndexError(f"sample {numbers} of {source.size}")
    wanted = wanted % source.size
    samples: list[Any] = source.read(wanted)
    there = [place for place, sample in enumerate(samples) if sample is not None]
    batch = RawBatch([samples[place] for place in there], [int(wanted[place]) for place in there])
    return work.values(source, batch)


def batch_sampler(ds: Looped) -> Any:
    """Return a batch sampler in the exact order of `ds`; see `Dataset.sampler`."""
    from torch.utils.data import Sampler

    class Numbers(Sampler):  # type: ignore[misc]
        """Lists of sample numbers: this rank's batches of the rest of the epoch."""

        def __init__(self) -> None:
            self._through: Any = None

        def __len__(self) -> int:
            return ds.cut().batches

        def __iter__(self) -> Iterator[list[int]]:
            import numpy

            cut, rank, order = ds.cut(), ds.rank(), ds.order()
            if self._through == cut.begin:
                warnings.warn(
                    f"{ds.name}: the same batches again: ds.advance() was not called in the loop", stacklevel=2
                )
            for number in range(cut.batches):
                yield order.samples(numpy.arange(*cut.share(number, rank), dtype=numpy.int64)).tolist()
            self._through = cut.begin

    return Numbers()
