"""What a scoring says as one JSON document, `cordee.score/1`; ratios are 0-1, what is not known is null."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cordee.core.stats import finite_document
from cordee.core.units import utc_text
from cordee.systems.score.result import CLASSES, SCHEMA, UNKNOWN, Saturation, ScorePart, ScoreShares


def document(saturation: Saturation) -> dict[str, Any]:
    """Return a scoring as it is printed with `--json` and written beside the pages."""
    shares = saturation.shares
    found = {
        "schema": SCHEMA,
        **_shares(shares),
        "confidence": saturation.confidence,
        "confidence_reasons": saturation.confidence_reasons,
        "balance": saturation.balance,
        "clock_ratio": saturation.clock_ratio,
        "kind": saturation.kind,
        "source": saturation.source,
        "assumed": list(saturation.assumed),
        "measures": "hardware saturation, not speed",
        "job": asdict(saturation.job),
        "cadence_s": saturation.cadence_s,
        "seconds": saturation.seconds,
        "diagnosis": [
            {
                "class": cause.name,
                "share": cause.share,
                "title": cause.title,
                "evidence": list(cause.evidence),
                "advice": list(cause.advice),
                "gain": cause.gain,
                "where": _where(cause.where),
            }
            for cause in saturation.diagnosis
        ],
        "flags": [flag.document() for flag in saturation.flags],
        "devices": [_device(part) for part in saturation.devices],
        "nodes": [{"node": part.key, **_part(part)} for part in saturation.nodes],
        "ranks": [{"rank": int(part.key), **_part(part)} for part in saturation.ranks],
        "caps": [asdict(cap) for cap in saturation.caps],
        "energy_joules": saturation.energy_joules,
        "mfu": saturation.mfu,
        "goodput": saturation.goodput_ratio,
        "rates": saturation.rates,
        "windows": _windows(saturation),
        "missing": saturation.missing,
        "remarks": saturation.remarks,
    }
    clean: dict[str, Any] = finite_document(found)
    return clean


def _shares(shares: ScoreShares) -> dict[str, Any]:
    return asdict(shares)


def _part(part: ScorePart) -> dict[str, Any]:
    return {**_shares(part.shares), "classes": part.classes, "means": part.means}


def _device(part: ScorePart) -> dict[str, Any]:
    about = asdict(part.device) if part.device is not None else {}
    about.pop("key", None)
    return {"device": part.key, **about, **_part(part)}


def _where(where: dict[str, Any]) -> dict[str, Any] | None:
    return {**where, "start": utc_text(where["start"]), "end": utc_text(where["end"])} if where else None


def _windows(saturation: Saturation) -> dict[str, Any]:
    """Return the classes of each device over time as letters of an alphabet that is given with them."""
    windows = saturation.windows
    names = (*CLASSES, UNKNOWN)
    return {
        "starts": [utc_text(float(start)) for start in windows.starts],
        "length_s": windows.length_s,
        "names": list(names),
        "classes": {part.key: windows.classes[:, at].tolist() for at, part in enumerate(saturation.devices)},
    }
