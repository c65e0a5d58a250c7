"""Text packed as tokens: `NAME.bin` and `NAME.idx` as Megatron-LM reads them, and `NAME.json` that says how they were made.

Which samples go into which part is decided before anything is written; a part that is whole is not made again, and the
parts become one `.bin` in their order: the same for any number of workers. The `.idx` comes last.
"""

from __future__ import annotations

import json
import os
import time
from itertools import accumulate
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cordee.core.errors import DataError, UsageError
from cordee.machine.foreign_files import parse_json
from cordee.systems.data.node.read.tokens.index import read_token_index, write_token_index
from cordee.systems.data.node.read.tokens.store import open_token_index
from cordee.systems.data.pack._base import CHUNK_BYTES, PackOptions, PackResult, Target, Tell, Unreadable
from cordee.systems.data.pack.already_packed import refuse_other
from cordee.systems.data.pack.places import refuse_file, work_folder
from cordee.systems.data.pack.state import PackState, write_whole
from cordee.systems.data.pack.tokens.documents import documents
from cordee.systems.data.pack.tokens.tokenizers import Tokenizer, open_tokenizer
from cordee.systems.data.pack.unreadable import refuse_unreadable
from cordee.systems.data.pack.workers import Jobs, run_all
from cordee.systems.data.pack.write_faults import writing_to

if TYPE_CHECKING:
    import numpy

    from cordee.systems.data.pack._base import PackPlan

    Array = numpy.ndarray[Any, Any]

SCHEMA = "cordee.tokens/1"
_PART_BYTES = 64 << 20
_HELD_TOKENS = 1 << 20


class TokenTarget(Target):
    """Packs text to a token set in a folder."""

    def pack(self, plan: PackPlan, to: str, options: PackOptions, tell: Tell) -> PackResult:
        with writing_to(to):
            return self._pack(plan, to, options, tell)

    def _pack(self, plan: PackPlan, to: str, options: PackOptions, tell: Tell) -> PackResult:
        began = time.monotonic()
        name, tokenizer = options.name or plan.name, open_tokenizer(options.tokenizer)
        folder = Path(to)
        about = {
            "target": "tokens",
            "fingerprint": plan.fingerprint,
            "name": name,
            "tokenizer": tokenizer.identity,
            "skip_unreadable": options.skip_unreadable,
            **({"text": options.text} if options.text != "text" else {}),
        }
        if _is_finished(folder, name, to, options):
            return _finished(folder / name, about, plan)
        state = PackState(work_folder(to), about, options.restart)
        try:
            packing = _Packing(plan, tokenizer, state, about)
            todo = [number for number in range(len(packing.parts)) if not packing.part(number).exists()]
            resumed = len(packing.parts) - len(todo)
            done = [
                len(packing.documents_of(number)) for number in range(len(packing.parts)) if number not in set(todo)
            ]
            try:
                run_all(
                    todo,
                    packing.work,
                    options.workers,
                    plan.origin.threads,
                    lambda samples, size: tell(sum(done) + samples, size),
                )
            except Unreadable as fault:
                refuse_unreadable(plan, fault)
            plan.origin.check()
            packed = packing.assemble(folder / name)
            state.remove()
        finally:
            state.close()
        packed.seconds, packed.resumed_shards = time.monotonic() - began, resumed
        packed.left_out.update(plan.left_out)
        return packed


TARGET = TokenTarget()


def read_about(path: str) -> dict[str, Any]:
    """Return what the packing wrote of a token set: tokenizer, vocabulary, end of a document, check sum; empty: another's.

    Args:
        path: of the set, without an ending.
    """
    try:
        return known_about(Path(path + ".json").read_bytes())
    except OSError:
        return {}


def known_about(text: bytes) -> dict[str, Any]:
    """Return what the text of such a file says; empty: it is another's."""
    try:
        about = parse_json(text)
    except ValueError:
        return {}
    return about if isinstance(about, dict) and about.get("schema") == SCHEMA else {}


class _Packing:
    """What every worker of one packing does, and what becomes of the parts."""

    def __init__(self, plan: PackPlan, tokenizer: Tokenizer, state: PackState, about: dict[str, Any]) -> None:
        self._plan, self._tokenizer, self._state, self._about = plan, tokenizer, state, about
        self.parts = _cut(plan)

    def part(self, number: int) -> Path:
        """Return where the lengths of a part's documents are kept; it is there when the part is whole."""
        return self._state.folder / f"{number:06d}.lengths"

    def documents_of(self, number: int) -> Array:
        """Return the tokens of each document of a whole part."""
        import numpy

        return numpy.fromfile(self.part(number), "<i8")

    def work(self, jobs: Jobs, add: Tell) -> None:
        """Write parts until none is left."""
        while (number := jobs.take()) is not None:
            self._write(number, add)

    def assemble(self, path: Path) -> PackResult:
        """Make one set of the parts; the index gives it its name."""
        import numpy
        from isal import isal_zlib

        none = numpy.empty(0, numpy.int64)
        lengths = numpy.concatenate([none, *(self.documents_of(number) for number in range(len(self.parts)))])
        partial, crc32 = path.with_name(path.name + ".bin.partial"), 0
        with partial.open("wb") as file:
            for number in range(len(self.parts)):
                with self._bin(number).open("rb") as part:
                    while chunk := part.read(CHUNK_BYTES):
                        crc32 = isal_zlib.crc32(chunk, crc32)
                        file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path.with_name(path.name + ".bin"))
        self._describe(path, lengths, crc32)
        left_out = [name for number in range(len(self.parts)) for name in self._state.left_out(number)]
        tokens = int(lengths.sum())
        size = tokens * numpy.dtype(self._tokenizer.dtype).itemsize
        return PackResult(
            path=str(path.parent),
            index=f"{path}.idx",
            shards=1,
            samples=len(lengths),
            bytes=size,
            seconds=0.0,
            left_out={"unreadable": left_out} if left_out else {},
            id=f"{crc32:08x}",
        )

    def _describe(self, path: Path, lengths: Array, crc32: int) -> None:
        """Write the index and what the packing knows beside it, the index last under its name."""
        hidden = path.with_name(f".{path.name}.idx")
        write_token_index(hidden, self._tokenizer.dtype, lengths)
        with hidden.open("rb") as file:
            idx_crc32 = read_token_index(file, str(path)).crc32
        about = {
            "schema": SCHEMA,
            "tokenizer": self._tokenizer.name,
            "vocabulary": self._tokenizer.vocabulary,
            "end_of_document": self._tokenizer.end,
            "dtype": self._tokenizer.dtype,
            "tokens": int(lengths.sum()),
            "documents": len(lengths),
            "crc32": crc32,
            "idx_crc32": idx_crc32,
            "made_of": self._about,
        }
        write_whole(path.with_name(path.name + ".json"), json.dumps(about, indent=1))
        hidden.rename(path.with_name(path.name + ".idx"))

    def _bin(self, number: int) -> Path:
        return self._state.folder / f"{number:06d}.tokens"

    def _write(self, number: int, add: Tell) -> None:
        import numpy

        lengths: list[int] = []
        left_out: list[str] = []
        with self._bin(number).open("wb") as file:
            writer = _Writer(file, self._tokenizer)
            for sample in self._plan.samples(*self.parts[number]):
                held = len(lengths)
                try:
                    for document in documents(self._plan, sample, self._about.get("text", "text")):
                        lengths.append(writer.write(document))
                        add(1, len(document))
                except Unreadable as fault:
                    if not self._about["skip_unreadable"]:
                        raise
                    name = fault.entry.name.decode("utf-8", "backslashreplace")
                    kept = f", its first {len(lengths) - held} documents are kept" if len(lengths) > held else ""
                    left_out.append(f"{name}: {fault.reason}{kept}")
            writer.flush()
            os.fsync(file.fileno())
        self._state.note_left_out(number, left_out)
        partial = self.part(number).with_suffix(".partial")
        numpy.array(lengths, "<i8").tofile(partial)
        partial.rename(self.part(number))


class _Writer:
    """Writes the tokens of documents, a few megabytes at a time."""

    def __init__(self, file: IO[bytes], tokenizer: Tokenizer) -> None:
        self._file, self._tokenizer = file, tokenizer
        self._held: list[Array] = []
        self._count = 0

    def write(self, document: bytes) -> int:
        """Write one document and return how many tokens it is."""
        import numpy

        tokens, end = self._tokenizer.encode(document), self._tokenizer.end
        limits = numpy.iinfo(self._tokenizer.dtype)
        if len(tokens) and (tokens.min() < limits.min or tokens.max() > limits.max):
            raise DataError(
                "the tokenizer made a token beyond its vocabulary",
                given=f"{tokens.min()} to {tokens.max()}",
                allowed=f"{limits.min} to {limits.max}, for a vocabulary of {self._tokenizer.vocabulary}",
            )
        whole = numpy.empty(len(tokens) + (end is not None), self._tokenizer.dtype)
        whole[: len(tokens)] = tokens
        if end is not None:
            whole[-1] = end
        self._held.append(whole)
        self._count += len(whole)
        if self._count >= _HELD_TOKENS:
            self.flush()
        return len(whole)

    def flush(self) -> None:
        """Hand over what is held."""
        for tokens in self._held:
            self._file.write(tokens.data)
        self._file.flush()
        self._held, self._count = [], 0


def _cut(plan: PackPlan) -> list[tuple[int, int]]:
    """Return the samples of each part, `(first, one after the last)`, of about 64 MiB of text each."""
    ends = accumulate(sum(entry.length for entry in sample.entries) for sample in plan.samples())
    parts, begin, limit = [], 0, _PART_BYTES
    for number, end in enumerate(ends, start=1):
        if end >= limit:
            parts.append((begin, number))
            begin, limit = number, end + _PART_BYTES
    if begin < len(plan):
        parts.append((begin, len(plan)))
    return parts


def _is_finished(folder: Path, name: str, to: str, options: PackOptions) -> bool:
    """Say whether a token set is there; remove it where that was asked for."""
    if "://" in to:
        raise UsageError("tokens are packed into a folder", given=to, next="pack them here and copy both files there")
    whole = [folder / f"{name}{ending}" for ending in (".idx", ".bin", ".json")]
    refuse_file(to)
    if options.restart:
        for path in whole:  # the index first: without it there is no set
            path.unlink(missing_ok=True)
    return whole[0].exists()


def _finished(path: Path, about: dict[str, Any], plan: PackPlan) -> PackResult:
    """Return what a token set holds that is there already, where it is what packing the plan would make."""
    known = read_about(str(path))
    refuse_other(known.get("made_of", {}), about, f"{path}.idx")
    index = open_token_index(str(path))
    return PackResult(
        path=str(path.parent),
        index=f"{path}.idx",
        shards=1,
        samples=index.documents,
        bytes=index.tokens * index.item_bytes,
        seconds=0.0,
        resumed_shards=1,
        left_out=plan.left_out,
        id=f"{known['crc32']:08x}",
        already=True,
        packed_s=path.with_name(path.name + ".idx").stat().st_mtime,
    )
