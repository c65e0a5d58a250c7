"""What counts as full: of each GPU model the share of a pipe and of DRAM that a well written microbenchmark reaches.

Caps come from TOML files of one shape, `[model."NVIDIA H100 80GB HBM3"]` with any of the keys of the table
of GPUs (`cordee/core/documents/gpu_models.toml`); what a later one says wins, key by key: the package's, the `[gpu.MODEL]` of
the profile that the run was planned with, the person's `~/.config/cordee/gpu-caps.toml`,
and the file of `--caps`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cordee.core.documents.config_paths import config_folder
from cordee.core.documents.files import read_toml
from cordee.core.documents.gpu_models import gpu_table, model_words
from cordee.core.documents.toml_lines import find_line
from cordee.core.errors import DocumentError
from cordee.core.words import did_you_mean
from cordee.systems.score.result import Caps

PIPES = ("tensor", "fp64", "fp32", "fp16")
LINKS = ("pcie", "c2c", "nvlink")
_CAPS = (*PIPES, "dram", "instructions")
_NUMBERS = (
    *_CAPS,
    "sms",
    "peak_flops",
    "peak_tf32_flops",
    "peak_fp64_tensor_flops",
    "peak_fp64_flops",
    "peak_fp32_flops",
    "peak_bytes_per_second",
    "power_watts",
    "full_power_watts",
    *(f"{link}_bytes_per_second" for link in LINKS),
)
_WORDS = ("origin", "date", "source", "driver", "host", "note", "method")
_FALLBACK_ORIGIN = "fallback, not measured"
CORES = "cores"
ModelTable = Mapping[str, Mapping[str, Any]]


class CapsTable:
    """Caps by model.

    Args:
        shipped: what the package knows of models, by names that those of drivers begin with.
        given: the same as people gave it, each table over those before it and all over what a site says.
        fallback: what holds where nobody measured.
    """

    def __init__(self, shipped: ModelTable, given: Sequence[ModelTable], fallback: Mapping[str, float]) -> None:
        self._shipped, self._given, self._fallback = shipped, given, fallback

    def of(self, model: str, site: ModelTable = MappingProxyType({})) -> Caps:
        """Return what counts as full for a model, by its driver's name; the fallback where nobody measured it.

        Args:
            site: what the profile of the job's cluster says of GPUs, by words that their drivers' names have.
        """
        about = {**self._fallback, **_named(self._shipped, model), **_worded(site, model)}
        for table in self._given:
            own = _named(table, model)
            if "origin" in own:
                about.pop("date", None)  # it is that of another measurement
            about.update(own)
        measured = "origin" in about
        if model == CORES:
            return Caps(model, {"instructions": about["instructions"]}, 1.0, _FALLBACK_ORIGIN, measured)
        links = {
            link: float(about[f"{link}_bytes_per_second"]) for link in LINKS if f"{link}_bytes_per_second" in about
        }
        return Caps(
            model=model,
            pipe={pipe: float(about[pipe]) for pipe in PIPES},
            dram=float(about["dram"]),
            origin=", ".join(str(about[key]) for key in ("origin", "date") if key in about) or _FALLBACK_ORIGIN,
            measured=measured,
            peak_flops=about.get("peak_flops"),
            peak_bytes_per_second=about.get("peak_bytes_per_second"),
            sms=int(about["sms"]) if "sms" in about else None,
            links=links,
        )


def _named(table: ModelTable, model: str) -> Mapping[str, Any]:
    """Return the entry of the longest name that this model is, or begins with."""
    wanted = _plain(model)
    known = [name for name in table if wanted == _plain(name) or wanted.startswith(_plain(name))]
    return table[max(known, key=len)] if known else {}


def _worded(table: ModelTable, model: str) -> Mapping[str, Any]:
    """Return the entry of the name with most words that all occur in this model's: `a100_80gb` in `NVIDIA A100-SXM4-80GB`."""
    wanted = set(model_words(model))
    known = [name for name in table if wanted.issuperset(model_words(name))]
    return table[max(known, key=lambda name: len(model_words(name)))] if known else {}


def read_caps(path: Path | str | None = None, environ: Mapping[str, str] = os.environ) -> CapsTable:
    """Return the caps of the package, of the person's settings, and of `path`.

    Raises:
        DocumentError: a file cannot be read or is none of caps; says the line.
    """
    own = config_folder(environ) / "gpu-caps.toml"
    files = [own] if own.is_file() else []
    files += [Path(path)] if path is not None else []
    shipped, given = gpu_table(), [read_caps_file(file) for file in files]
    fallback: dict[str, float] = {}
    for document in (shipped, *given):
        fallback.update(document.get("fallback", {}))
    return CapsTable(shipped["model"], [document.get("model", {}) for document in given], fallback)


def read_caps_file(path: Path) -> dict[str, Any]:
    """Return a file of caps as it is, checked.

    Raises:
        DocumentError: it cannot be read, or holds something that is no cap.
    """
    text, document = read_toml(path)
    for top in document:
        if top not in ("model", "fallback"):
            raise _fault(path, text, (top,), "there is no such table", top, ["model", "fallback"])
    for top, about in document.items():
        if not isinstance(about, dict):
            raise _fault(path, text, (top,), "this is a table", f"{top} = {about!r}", '[model."NAME"]')
    tables = [(("model", name), about) for name, about in document.get("model", {}).items()]
    for keys, about in [*tables, (("fallback",), document.get("fallback", {}))]:
        if not isinstance(about, dict):
            raise _fault(path, text, keys, "a model is a table of numbers", about, _NUMBERS)
        for name, value in about.items():
            _check(path, text, (*keys, name), name, value)
    return document


def _check(path: Path, text: str, keys: tuple[str, ...], name: str, value: Any) -> None:
    if name in _WORDS:
        return
    if name not in _NUMBERS:
        raise _fault(path, text, keys, "there is no such cap or peak", name, [*_NUMBERS, *_WORDS])
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not value > 0:
        raise _fault(path, text, keys, f"{name} is a number above 0", value, "a number above 0")
    if name in (*PIPES, "dram") and not 0.05 <= value <= 1.5:
        raise _fault(path, text, keys, f"{name} is a share of the hardware's counter", value, "0.05 to 1.5")


def _fault(path: Path, text: str, keys: Sequence[str], what: str, given: Any, allowed: Any) -> DocumentError:
    hint = (
        did_you_mean(given, allowed, "correct it") if not isinstance(allowed, str) and isinstance(given, str) else None
    )
    return DocumentError(
        what, file=str(path), line=find_line(text, tuple(keys)), given=given, allowed=allowed, next=hint
    )


def _plain(model: str) -> str:
    words = model.lower().replace("-", " ").split()
    return " ".join(word for word in words if word not in ("nvidia", "tesla", "graphics"))
