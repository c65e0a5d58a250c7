"""The formats of what was counted: by the first bytes of a few samples, by structure, else by names."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from cordee.core.errors import DataError
from cordee.systems.data.node.shards.index import MAGIC as INDEX_MAGIC
from cordee.systems.data.survey.magic import FIRST_BYTES, format_of, holds_samples, open_quietly, read_first
from cordee.systems.data.survey.model import SurveyedFormat
from cordee.systems.data.survey.worker import Part

MOST_SAMPLES = 64
_BY_SUFFIX = {
    "image": "jpg jpeg png webp bmp tif tiff gif ppm pgm jp2 avif",
    "audio": "wav flac mp3 ogg opus m4a",
    "video": "mp4 mkv webm avi mov",
    "tar": "tar",
    "compressed": "gz zst xz bz2 lz4 tgz tar.gz tar.zst tar.xz tar.bz2 tar.lz4 csv.gz jsonl.gz json.gz txt.gz csv.zst jsonl.zst",
    "zip": "zip",
    "parquet": "parquet pq",
    "arrow": "arrow feather",
    "hdf5": "h5 hdf5 hdf he5",
    "zarr": "<zarr>",
    "tfrecord": "tfrecord tfrecords tfrec",
    "npy": "npy",
    "npz": "npz",
    "torch": "pt pth",
    "safetensors": "safetensors",
    "squashfs": "sqsh sqfs squashfs",
    "megatron": "idx",
    "packed": "<packed> index",
    "python environment": "<venv>",
    "text": "txt csv tsv json jsonl ndjson xml md yaml yml py html",
}
_FORMATS = {suffix: name for name, suffixes in _BY_SUFFIX.items() for suffix in suffixes.split()}
_BELOW_MARKS = {"venv": "python environment", "zarr": "zarr", "packed": "packed"}
OTHER = "other"
_TAR_BYTES = 1 << 20

Read = Callable[[str, int], bytes]


def formats(part: Part, read: Read = read_first) -> tuple[SurveyedFormat, ...]:
    """Return the formats of what was counted, the largest first.

    Args:
        read: gives so many first bytes of a sample, an absolute path or an object's name; raises OSError or DataError.
    """
    found: dict[str, list[Any]] = {}
    votes = _votes(part, read)
    marked = {_BELOW_MARKS[mark] for mark in part["marked"]}
    for suffix, (files, size, largest) in part["suffixes"].items():
        by_name = _FORMATS.get(suffix, OTHER)
        if suffix in ("#", "") and "zarr" in marked and suffix not in votes:
            by_name = "zarr"
        by_content = votes.get(suffix)
        name = by_content or by_name
        how = "structure" if suffix.startswith("<") or by_name in marked else "content" if by_content else "name"
        kept = found.setdefault(name, [0, 0, 0, how, []])
        kept[0] += files
        kept[1] += size
        kept[2] = max(kept[2], largest)
        kept[3] = how if kept[3] == "name" else kept[3]
        kept[4] += _examples(suffix, part)
    _pair_megatron(part, found)
    listed = [
        SurveyedFormat(name, files, size, how, largest, tuple(paths[:4]))
        for name, (files, size, largest, how, paths) in found.items()
    ]
    return tuple(sorted(listed, key=lambda each: (-each.bytes, -each.files, each.name)))


def _votes(part: Part, read: Read) -> dict[str, str]:
    """Return, by suffix, the format that most of its samples are of; the suffixes with most bytes are looked at."""
    order = sorted(part["suffixes"].items(), key=lambda item: (-item[1][1], -item[1][0], item[0]))
    votes: dict[str, str] = {}
    looked = 0
    for suffix, _ in order:
        if suffix.startswith("<"):
            continue
        told: Counter[str] = Counter()
        for path, size in part["samples"].get(suffix, []):
            if looked >= MOST_SAMPLES:
                return votes
            if not size:
                continue
            looked += 1
            name = _sample_format(path, size, read)
            if name:
                told[name] += 1
        if told:
            name = told.most_common(1)[0][0]
            votes[suffix] = name if name != "text" else _FORMATS.get(suffix, "text")
    return votes


def _sample_format(path: str, size: int, read: Read) -> str | None:
    try:
        first = read(path, min(size, FIRST_BYTES))
    except (OSError, DataError):
        return None
    if first.startswith(INDEX_MAGIC):
        return "packed"
    name = format_of(first, size)
    if name == "tar" and _holds_samples(path, size, read):
        return "webdataset"
    return name


def _holds_samples(path: str, size: int, read: Read) -> bool:
    try:
        if not os.path.isabs(path):
            return holds_samples(io.BytesIO(read(path, min(size, _TAR_BYTES))))
        with open(open_quietly(path), "rb") as file:
            return holds_samples(file)
    except (OSError, DataError):
        return False


def _examples(suffix: str, part: Part) -> list[str]:
    """Return paths of samples; of what folders are made of, the folders."""
    if suffix.startswith("<"):
        return sorted(part["marked"].get(suffix.strip("<>"), {"paths": []})["paths"], key=len)
    return [path for path, _ in part["samples"].get(suffix, [])]


def _pair_megatron(part: Mapping[str, Any], found: dict[str, list[Any]]) -> None:
    """Count the .bin beside Megatron's .idx as what they are."""
    if "megatron" not in found or "bin" not in part["suffixes"] or found["megatron"][3] != "content":
        return
    samples = found["megatron"][4]
    if not any(os.path.exists(path[: -len("idx")] + "bin") for path in samples if path.endswith(".idx")):
        return
    files, size, largest = part["suffixes"]["bin"]
    kept, rest = found["megatron"], found[OTHER]
    kept[0], kept[1], kept[2] = kept[0] + files, kept[1] + size, max(kept[2], largest)
    rest[0], rest[1] = rest[0] - files, rest[1] - size
    rest[4] = [path for path in rest[4] if not path.endswith(".bin")]
    if not rest[0]:
        del found[OTHER]
