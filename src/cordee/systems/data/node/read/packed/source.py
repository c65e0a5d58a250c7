"""Samples of a packed data set by number: whole blocks planned by NumPy, one request for what lies together."""

from __future__ import annotations

import errno
import os
import threading
import time
import warnings
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional, Sequence, Union

from cordee.core.errors import CorruptDataError, DataError, UsageError
from cordee.systems.data.node.read._base import Sample, Samples, SampleSource, Unread
from cordee.systems.data.node.read.ahead.adviser import Adviser
from cordee.systems.data.node.read.ahead.choice import WAYS, limit_for, way_for, workers_of_loader
from cordee.systems.data.node.read.ahead.fetcher import NETWORK_FILES, OBJECTS, Fetcher
from cordee.systems.data.node.read.ahead.read_ahead import ReadAhead
from cordee.systems.data.node.read.ahead.threads import Threads
from cordee.systems.data.node.read.batches.columns import SampleTable
from cordee.systems.data.node.read.batches.memory import keep_freed_memory
from cordee.systems.data.node.read.counters import ReadCounts
from cordee.systems.data.node.read.deferred_close import ENDING, close_elsewhere
from cordee.systems.data.node.read.order.ranks import usable_threads
from cordee.systems.data.node.read.packed.batch_pread import ManyReads
from cordee.systems.data.node.read.packed.block import BlockReading, ReadPlan
from cordee.systems.data.node.read.packed.files import Files
from cordee.systems.data.node.read.packed.layout import PackedLayout, assembled
from cordee.systems.data.node.read.remote import RemoteFiles, index_of
from cordee.systems.data.node.shards.index import INDEX_NAME, Path, open_index

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

CHECKS = ("decode", "always", "never")
CORRUPT = ("raise", "skip")
_BLOCK_SAMPLES = 512
# So many samples that are left out are named.
_NAMED = 20


class PackedSource(SampleSource):
    """Samples of tar shards with an index, read by number.

    Args:
        path: the folder, or the index file.
        fields: which fields to read; None: all.
        keys: give each sample its `key`.
        root: where the shards lie, when not where the index says.
        check: `always` compares all that is read with the index's CRC-32; `decode` only where decoding fails (by
            `verify`); `never`.
        corrupt: `raise`, or `skip`: None stands in a damaged sample's place, and it is counted.
        ahead: how storage is asked early: `advise` (the kernel reads into its cache), `fetch` (threads read into this
            process), `none`; `auto` by the kind of file system.
        ahead_bytes: asked for early at most; None: a share of the free memory.

    Raises:
        UsageError: an option has a value that there is not.
        DataError, CorruptDataError: the index cannot be used.
    """

    _ending = ENDING

    def __init__(
        self,
        path: Path,
        fields: Optional[Sequence[str]] = None,
        *,
        keys: bool = False,
        root: Optional[str] = None,
        check: str = "decode",
        corrupt: str = "raise",
        ahead: str = "auto",
        ahead_bytes: Optional[int] = None,
    ) -> None:
        _allowed("check", [check], CHECKS)
        _allowed("corrupt", [corrupt], CORRUPT)
        _allowed("ahead", [ahead], WAYS)
        given = os.fspath(path)
        if given.startswith("s3://"):
            self.index = open_index(index_of(given), root or _folder_of(given))
        else:
            self.index = open_index(os.path.abspath(given), root)
        self.name, self.size, self.identity = self.index.name, self.index.samples, self.index.id
        self.classes = self.index.classes
        self.counts = ReadCounts()
        self.fields = tuple(fields) if fields is not None else self.index.fields
        _allowed("fields", self.fields, self.index.fields)
        self.keys, self.check, self.corrupt = keys, check, corrupt
        self.way = way_for(self.index.root) if ahead == "auto" else ahead
        self.limit_bytes = limit_for(self.way, ahead_bytes)
        mean_bytes = max(1, self.index.bytes // max(1, self.size))
        self.ahead_samples = 0 if self.way == "none" else max(1, self.limit_bytes // mean_bytes)
        self._layout = PackedLayout(self.index, self.fields)
        if check == "always" and not self._layout.has_crc32:
            raise UsageError(
                "the index has no check sums to compare with",
                given=f'{self.index.path}, check="always"',
                allowed='check="decode" or "never"',
                next="make the index anew without --no-crc: `cordee data pack --index-only`",
            )
        self._begin()

    def _begin(self) -> None:
        """Make what belongs to one process: open files and threads."""
        keep_freed_memory()
        self._process = os.getpid()
        self._one_by_one = threading.Lock()
        self._ahead: Optional[ReadAhead] = None
        remote = "://" in self.index.root
        workers = workers_of_loader()
        limit_bytes = max(1, self.limit_bytes // workers)
        self._many = ManyReads(max(1, usable_threads() // workers))
        # One more than there are threads: none of them waits while what is read becomes batches.
        self.at_once = self._many.threads + (self._many.threads > 1)
        self.files: Union[Files, RemoteFiles] = (
            RemoteFiles(self.index, self.counts)
            if remote
            else Files(self.index, self.counts, cut_off_too=self.corrupt == "skip")
        )
        if remote or self.way == "fetch":
            shape = OBJECTS if remote else NETWORK_FILES
            threads = Threads(self.files.read, self.counts, shape.threads)
            self._ahead = Fetcher(self._layout, limit_bytes, threads, shape, ahead=self.way != "none")
        elif self.way == "advise" and isinstance(self.files, Files):
            self._ahead = Adviser(self._layout, limit_bytes, self.files, self.counts)

    def read(self, samples: "Array") -> list[Sample]:
        """Return samples in the order asked for; with corrupt="skip", None in the place of a damaged one."""
        samples = self._checked(samples)
        if not self.fields:
            return list(self._complete(samples, [{} for _ in range(len(samples))]))
        first = self._ahead.reached(samples) if self._ahead else None
        if isinstance(self._ahead, Fetcher):
            return list(self._complete(samples, self._fetched(self._ahead, first, samples)))
        found: list[Any] = []
        for some in self._parts(samples):
            found += self._complete(some, self._reading(some).samples())
        return found

    def begin(self, samples: "Array") -> Callable[[], Samples]:
        """Begin to read samples; return what waits for them and returns what `read` would."""
        samples = self._checked(samples)
        if not self.fields or isinstance(self._ahead, Fetcher) or self._many.threads < 2:
            return partial(self.read, samples)
        if self._ahead:
            self._ahead.reached(samples)
        parts = [(some, self._reading(some)) for some in self._parts(samples)]
        for _, reading in parts:
            reading.start()

        def samples_read() -> Samples:
            found = [self._complete(some, reading.samples()) for some, reading in parts]
            return found[0] if len(found) == 1 else [sample for part in found for sample in part]

        return samples_read

    @property
    def in_parts(self) -> bool:  # type: ignore[override]
        """Whether the threads that decode may read: not where other threads fetch from afar."""
        if os.getpid() != self._process:
            self._begin()
        return bool(self.fields) and isinstance(self.files, Files) and not isinstance(self._ahead, Fetcher)

    def unread(self, samples: "Array") -> Unread:
        """Return samples to be read in parts."""
        samples = self._checked(samples)
        if self._ahead:
            self._ahead.reached(samples)
        self.counts.samples += len(samples)
        return _Unread(self, samples, ReadPlan.made(self._layout, samples))

    def expect(self, samples: "Array") -> None:
        """Append to what is read next, in this order; a read of anything else forgets all that was expected."""
        if os.getpid() != self._process:
            self._begin()
        if self._ahead and self.fields:
            self._ahead.expect(samples)

    def verify(self, sample: int, values: Sample) -> None:
        """Compare a sample's bytes, as read, with the index.

        Raises:
            CorruptDataError: they differ; names the key and where it lies.
        """
        for field, crc32 in self._layout.crc32(sample).items():
            if field in values and zlib.crc32(values[field]) != crc32:
                raise CorruptDataError(
                    f"a sample is damaged: its {field} is not what was packed",
                    given=self.describe(sample),
                    next="`cordee data verify` names all that are damaged; copy those shards again, "
                    'or leave the samples out: corrupt="skip"',
                )

    def skip(self, sample: int) -> None:
        """Count a damaged sample as left out; the first ones are named."""
        self.counts.skipped += 1
        if self.counts.skipped > _NAMED:
            return
        text = f"a damaged sample is left out: {self.describe(sample)}"
        if self.counts.skipped == _NAMED:
            text += "; more are counted and not named, `cordee data verify` names all"
        warnings.warn(text, RuntimeWarning, stacklevel=2)

    def describe(self, sample: int) -> str:
        """Return a sample's key, its shard and where it begins there."""
        block = self._layout.block(_array([sample]))
        return f"{self.index.key(sample)!r} in {self.index.shard_path(int(block.shards[0]))} at byte {block.begins[0]}"

    def close(self) -> None:
        """Give back files and threads; the next read opens them anew."""
        if os.getpid() == self._process:
            if self._ahead:
                self._ahead.close()
            self._many.close()
            self.files.close()
            self._process = 0

    def __del__(self) -> None:
        if not self._ending() and hasattr(self, "files") and os.getpid() == self._process:
            close_elsewhere(self.close)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a spawned worker begins with: where the index lies, no open files."""
        names = (
            "name",
            "classes",
            "size",
            "identity",
            "fields",
            "keys",
            "check",
            "corrupt",
            "way",
            "limit_bytes",
            "ahead_samples",
        )
        return {**{name: getattr(self, name) for name in names}, "path": self.index.path, "root": self.index.root}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.index = open_index(state.pop("path"), state.pop("root"), compared=False)
        self.__dict__.update(state)
        if self.index.id != self.identity:
            raise CorruptDataError(
                "the data set was packed anew while it was in use",
                given=f"{self.index.path}: {self.index.id}",
                allowed=self.identity,
                next="start the job again",
            )
        self.counts = ReadCounts()
        self._layout = PackedLayout(self.index, self.fields)
        self._process = 0  # files and threads are made where it is read

    def _checked(self, samples: "Array") -> "Array":
        """Return sample numbers as int64, each of a sample that there is; files and threads are this process's."""
        import numpy

        samples = numpy.asarray(samples, dtype=numpy.int64).reshape(-1)
        if len(samples) and not (int(samples.min()) >= 0 and int(samples.max()) < self.size):
            raise UsageError(
                f"the data set {self.name!r} has no such sample",
                given=f"{int(samples.min())} to {int(samples.max())}",
                allowed=f"0 to {self.size - 1}",
                next="ask for samples by numbers below the source's `size`",
            )
        if os.getpid() != self._process:  # closed, or forked: threads and locks stayed with the parent
            self._begin()
        return samples

    def _parts(self, samples: "Array") -> "list[Array]":
        """Return samples in blocks, of no more shards than may be open at once."""
        assert isinstance(self.files, Files)
        step = _BLOCK_SAMPLES if len(self.index.shards) <= self.files.most else min(_BLOCK_SAMPLES, self.files.most)
        return [samples[begin : begin + step] for begin in range(0, len(samples), step)]

    def _reading(self, samples: "Array") -> BlockReading:
        return self.reading(ReadPlan.made(self._layout, samples))

    def reading(self, plan: ReadPlan) -> BlockReading:
        """Return what reads as planned."""
        assert isinstance(self.files, Files)
        return BlockReading(plan, self.files, self._many, self.counts, self._carefully)

    def _carefully(self, samples: "Array") -> list[Any]:
        with self._one_by_one:
            return _read_carefully(self, self._layout, samples)

    def _fetched(self, fetcher: Fetcher, first: Optional[int], samples: "Array") -> list[Any]:
        """Return samples from what was fetched early, or is fetched now; what failed is read once more by itself."""
        block = self._layout.block(samples)
        found: list[Any] = []
        for place, parts in enumerate(fetcher.take(first, samples)):
            whole = [part for part in parts if part is not None]
            if len(whole) == len(parts):
                found.append(assembled(self.fields, block, place, whole))
            else:
                found += self._carefully(samples[place : place + 1])
        return found

    def _complete(self, samples: "Array", found: Samples) -> Samples:
        """Count samples and return them completed."""
        self.counts.samples += len(samples)
        return self.completed(samples, found)

    def completed(self, samples: "Array", found: Samples) -> Samples:
        """Return what was read with labels and keys; look at the check sums where that was asked for."""
        labels = self._layout.labels(samples)
        if (
            isinstance(found, SampleTable)
            and (labels is None or not isinstance(labels, list))
            and self.check != "always"
        ):
            if labels is not None:
                found.columns["label"] = labels
            if self.keys:
                found.columns["key"] = [self.index.key(number) for number in samples.tolist()]
            return found
        found = list(found)
        if labels is not None:
            for sample, label in zip(found, labels if isinstance(labels, list) else labels.tolist()):
                if label is not None and sample is not None:
                    sample["label"] = label
        if self.keys:
            for number, sample in zip(samples.tolist(), found):
                if sample is not None:
                    sample["key"] = self.index.key(number)
        if self.check == "always":
            self._verify_all(samples, found)
        return found

    def _verify_all(self, samples: "Array", found: list[Any]) -> None:
        for place, number in enumerate(samples.tolist()):
            try:
                self.verify(number, found[place] or {})
            except CorruptDataError:
                if self.corrupt == "raise":
                    raise
                found[place] = None
                with self._one_by_one:
                    self.skip(number)


class _Unread(Unread):
    """Samples of a source that are planned."""

    def __init__(self, source: PackedSource, samples: "Array", plan: ReadPlan) -> None:
        self._source, self._samples, self._plan = source, samples, plan
        self.bytes = int(plan.sizes.sum())

    def read(self, begin: int, end: int) -> Samples:
        reading = self._source.reading(self._plan.part(begin, end))
        return self._source.completed(self._samples[begin:end], reading.samples_here())


def _folder_of(address: str) -> str:
    """Return where the shards of an index in a store lie."""
    return address[: -len(INDEX_NAME)] if address.endswith("/" + INDEX_NAME) else address


def _array(samples: Iterable[int]) -> "Array":
    import numpy

    return numpy.fromiter(samples, numpy.int64)


def _allowed(option: str, given: Iterable[str], allowed: Sequence[str]) -> None:
    for value in given:
        if value not in allowed:
            raise UsageError(
                f"a data set's {option} is none that there is",
                given=repr(value),
                allowed=", ".join(allowed),
                next=f"name one of these as {option}=",
            )


def _read_carefully(source: PackedSource, layout: PackedLayout, samples: "Array") -> list[Any]:
    """Return samples as `read` does, each read by itself; a file that was replaced on its server is opened anew once.

    Raises:
        CorruptDataError: a shard ends within a sample (unless those are skipped), or is another one.
        DataError: storage failed.
    """
    found: list[Any] = []
    for place, number in enumerate(samples.tolist()):
        try:
            found.append(_sample(source, layout, samples[place : place + 1]))
        except OSError as error:
            raise _failed(source, number, error) from error
        if found[-1] is not None:
            continue
        if source.corrupt == "raise":
            raise CorruptDataError(
                "a shard ends within a sample",
                given=source.describe(number),
                next="copy the shard again; `cordee data verify` names all that is damaged",
            )
        source.skip(number)
    return found


def _sample(source: PackedSource, layout: PackedLayout, samples: "Array") -> Optional[dict[str, Any]]:
    """Return one sample; None when its shard ends before it does."""
    block = layout.block(samples)
    pieces = layout.pieces(block)
    shard = int(block.shards[0])
    parts = []
    for begin, end in zip(pieces.begins.tolist(), pieces.ends.tolist()):
        started = time.perf_counter()
        data = _stretch(source, shard, begin, end - begin)
        source.counts.request(end - begin, time.perf_counter() - started)
        if len(data) != end - begin:
            return None
        parts.append(data)
    return assembled(layout.fields, block, 0, parts)


def _stretch(source: PackedSource, shard: int, begin: int, length: int) -> bytes:
    try:
        return source.files.read(shard, begin, length)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
    source.files.reopen(shard)
    return source.files.read(shard, begin, length)


def _failed(source: PackedSource, sample: int, error: OSError) -> DataError:
    name: Optional[str] = errno.errorcode.get(error.errno or 0)
    return DataError(
        f"storage failed while a sample was read: {error.strerror or error} ({name})",
        given=source.describe(sample),
        next="look at the file system (`dmesg`, its status page); the job continues from its last checkpoint when it is back",
    )
