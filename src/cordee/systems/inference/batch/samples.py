"""The samples of a batch: lines of a file, shared out to tasks; each task writes one file of answers, which is there when all of it is."""

from __future__ import annotations

import codecs
import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.documents.texts import text_of
from cordee.core.errors import CordeeError, UsageError
from cordee.machine.foreign_files import parse_json, regular
from cordee.runs.folder import write_atomically

SPEC, TASKS, OUTPUT = "batch.json", "tasks.txt", "output.jsonl"
# Why the model could not be loaded, as the first task that found out has written it.
REFUSED = "refused.json"


class BatchError(CordeeError):
    """A batch cannot be run, or its answers are not whole."""

    kind = "batch"
    exit_code = 1


class BatchPart(NamedTuple):
    """The samples of one task: the first one's number, how many, and where their lines begin in the file."""

    first: int
    samples: int
    offset: int


class BatchRequest(NamedTuple):
    """What is asked of a model.

    Attributes:
        input: the file, one sample a line: text, or JSON with `prompt`.
        digest: SHA-256 of the file.
        model: the folder with the model.
        tokens: the most of one answer.
        at_once: samples that go through the model together.
        device: `cpu`, `cuda` or `auto`.
        parts: one for each task.
    """

    input: str
    digest: str
    model: str
    tokens: int
    at_once: int
    device: str
    parts: tuple[BatchPart, ...]

    @property
    def samples(self) -> int:
        """How many there are."""
        return sum(part.samples for part in self.parts)


def split(path: Path, tasks: int) -> tuple[str, tuple[BatchPart, ...]]:
    """Return the digest of a file of samples, and its lines as so many parts; empty lines are no samples.

    Raises:
        UsageError: it cannot be read, or holds no sample. DocumentError: it is not UTF-8.
    """
    digest, offsets, at = hashlib.sha256(), [], 0
    try:
        with open(path, "rb", opener=regular) as file:
            for number, line in enumerate(file, 1):
                # Parts are found by the bytes of line ends, which UTF-16 has within letters too.
                if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    text = "the samples are in UTF-16"
                    raise UsageError(text, file=str(path), line=number, allowed="UTF-8", next="save them as UTF-8")
                text_of(line, str(path), number)
                digest.update(line)
                if line.strip():
                    offsets.append(at)
                at += len(line)
    except OSError as error:
        raise UsageError(f"the samples cannot be read: {error.strerror or error}", given=str(path)) from error
    if not offsets:
        raise UsageError(
            "the file holds no sample", given=str(path), allowed='a text, or {"prompt": ...}, on each line'
        )
    count = min(tasks, len(offsets))
    borders = [len(offsets) * number // count for number in range(count + 1)]
    parts = (BatchPart(a, b - a, offsets[a]) for a, b in itertools.pairwise(borders))
    return digest.hexdigest(), tuple(parts)


def write_spec(folder: Path, spec: BatchRequest) -> None:
    """Write what is asked."""
    write_atomically(folder / SPEC, json.dumps(spec._asdict()))


def read_spec(folder: Path) -> BatchRequest:
    """Return what is asked.

    Raises:
        BatchError: it cannot be read.
    """
    try:
        document = json.loads((folder / SPEC).read_text())
        parts = tuple(BatchPart(*part) for part in document.pop("parts"))
        return BatchRequest(**document, parts=parts)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BatchError(f"the batch cannot be read: {error}", given=str(folder / SPEC)) from error


def read_part(spec: BatchRequest, part: BatchPart) -> Iterator[tuple[int, str, str]]:
    """Yield (number, prompt, fault) of the samples of a part; one that is no sample has a fault.

    Raises:
        BatchError: the file has changed.
    """
    number, left = part.first, part.samples
    jsonl = spec.input.endswith((".jsonl", ".ndjson", ".json"))
    with open(spec.input, "rb") as file:
        file.seek(part.offset)
        while left:
            line = file.readline()
            if not line:
                raise BatchError("the file of samples has become shorter", given=spec.input, next="begin a new batch")
            if not line.strip():
                continue
            text, fault = text_of(line, spec.input).rstrip("\r\n"), ""
            if jsonl:
                try:
                    text = parse_json(text)["prompt"]
                    if not isinstance(text, str):
                        raise TypeError
                except (ValueError, TypeError, KeyError):
                    text, fault = "", 'the line is no JSON with "prompt", a text'
            yield number, text, fault
            number, left = number + 1, left - 1


def part_path(folder: Path, index: int) -> Path:
    """Return the file of a task's answers."""
    return folder / "parts" / f"part-{index:06}.jsonl"


def missing(folder: Path, spec: BatchRequest) -> list[int]:
    """Return the tasks whose answers are not there."""
    return [index for index in range(len(spec.parts)) if not part_path(folder, index).exists()]


def collect(folder: Path, spec: BatchRequest) -> dict[str, Any]:
    """Write all answers into one file, in the order of the samples; return `samples` and `faults`.

    Raises:
        BatchError: a sample is not there exactly once.
    """
    target, faults = folder / OUTPUT, 0
    partial = folder / f".{OUTPUT}.tmp"
    with partial.open("wb") as out:
        for index, part in enumerate(spec.parts):
            numbers = []
            for line in part_path(folder, index).read_bytes().splitlines(keepends=True):
                answer = json.loads(line)
                numbers.append(answer["sample"])
                faults += "fault" in answer
                out.write(line)
            if numbers != list(range(part.first, part.first + part.samples)):
                text = f"the answers of task {index} are not its samples, each once"
                raise BatchError(text, given=str(part_path(folder, index)), next="remove that file and run it again")
        out.flush()
        os.fsync(out.fileno())
    partial.replace(target)
    return {"samples": spec.samples, "faults": faults}
