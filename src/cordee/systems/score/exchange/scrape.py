"""Scrapes of dcgm-exporter in Prometheus' text format, one after the other in a file.

`DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-...",modelName="...",Hostname="..."} 97 1700000000000`: the moment, in milliseconds, may
stand behind every value, or a line `# time 1700000000.5` (or ISO 8601 with a zone) before every scrape. dcgm-exporter itself
writes no moments, so one of both is needed.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from cordee.core.errors import DocumentError
from cordee.systems.score.exchange.dcgm_fields import standardise
from cordee.systems.score.exchange.files import read_text
from cordee.systems.score.exchange.imported import FoundDevice, ImportedSamples
from cordee.systems.score.exchange.labels import PREFIX, NoDevice, device_of, finish
from cordee.systems.score.exchange.prometheus import cadence_of

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)?\s*(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d+))?\s*$")
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_TIME = re.compile(r"#\s*time\s+(\S+)\s*$", re.IGNORECASE)


def read_scrapes(paths: list[Path]) -> ImportedSamples:
    """Return what scrapes hold.

    Raises:
        DocumentError: a line is no sample, a moment is missing, or nothing is of a GPU.
    """
    found = ImportedSamples("scrapes of dcgm-exporter", "dcgm", 0.0)
    samples: dict[tuple[str, str, str], tuple[FoundDevice, list[float], list[float]]] = {}
    for path in paths:
        _read(found, path, samples)
    steps = []
    for (_, _, name), (device, times, values) in samples.items():
        device.series(name).add(times, values)
        ordered = sorted(set(times))
        steps += [after - before for before, after in pairwise(ordered)]
    finish(found)
    if not found.devices:
        raise DocumentError(
            "no sample in these files is of a GPU",
            file=str(paths[0]),
            given=", ".join(sorted(found.unknown)) or "no sample",
            allowed='DCGM_FI_...{UUID="...",Hostname="..."} value milliseconds',
        )
    found.cadence_s = cadence_of(steps)
    standardise(found)
    return found


def _read(
    found: ImportedSamples,
    path: Path,
    samples: dict[tuple[str, str, str], tuple[FoundDevice, list[float], list[float]]],
) -> None:
    moment: float | None = None
    for line, text in enumerate(read_text(path).split("\n"), 1):
        if text.startswith("#"):
            time = _TIME.match(text)
            moment = _moment(path, line, time[1]) if time else moment
            continue
        if not text.strip():
            continue
        name, labels, value, at = _sample(path, line, text)
        if not name.startswith(PREFIX):
            found.unknown[name] = found.unknown.get(name, 0) + 1
            continue
        if at is None and moment is None:
            raise DocumentError(
                "nothing says when this was scraped",
                file=str(path),
                line=line,
                given=text[:120],
                allowed="milliseconds behind the value, or a line `# time SECONDS` before the scrape",
                next='write scrapes with: (echo "# time $(date +%s.%N)"; curl -s NODE:9400/metrics) >> scrapes.txt',
            )
        try:
            device = device_of(found, labels)
        except NoDevice as error:
            raise DocumentError(f"a sample of no GPU: {error}", file=str(path), line=line, given=text[:120]) from error
        place = samples.setdefault((device.node, device.key, name), (device, [], []))
        place[1].append(moment if at is None else at)  # type: ignore[arg-type]
        place[2].append(value)


def _sample(path: Path, line: int, text: str) -> tuple[str, dict[str, str], float, float | None]:
    match = _SAMPLE.match(text)
    labels = _labels(match[2] or "") if match else None
    name = (match[1] or (labels or {}).get("__name__", "")) if match else ""
    try:
        if match is None or labels is None or not name:
            raise ValueError("no name, labels and value")
        value = float(match[3])
    except ValueError as error:
        raise DocumentError(
            "this line is no sample",
            file=str(path),
            line=line,
            given=text[:120],
            allowed='NAME{LABEL="TEXT",...} VALUE [MILLISECONDS]',
        ) from error
    at = int(match[4]) / 1000 if match[4] else None
    return name, labels, value if math.isfinite(value) else math.nan, at


def _labels(text: str) -> dict[str, str] | None:
    labels, at = {}, 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            return None
        labels[match[1]] = re.sub(r'\\[\\"n]', lambda escape: _ESCAPES[escape[0]], match[2])
        at = match.end()
    return labels


def _moment(path: Path, line: int, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise DocumentError(
            "this is no moment",
            file=str(path),
            line=line,
            given=word,
            allowed="seconds since 1970, or ISO 8601 with a zone as 2026-02-11T10:00:00Z",
        )
    return moment.timestamp()
