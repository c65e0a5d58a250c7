"""The catalogue: EDFs that are written out for a fabric, each with a vetting protocol beside it."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from cordee.core.errors import UsageError
from cordee.core.words import did_you_mean
from cordee.runs.folder import write_atomically

FABRICS = ("slingshot", "infiniband", "efa", "ethernet")
_TABLE = re.compile(r"^\[(\w+)\]$")
_PROTOCOLS = {"cuda": "gpu", "rocm": "gpu", "cpu": "cpu"}
_ABOUT = """\
# Whether nodes are fit for it: `cordee vet {name}.vet.yaml`. What it reaches is measured where it is used: on a node that is well
# `cordee env doctor {name}.toml --keep` writes {name}.baseline.json, and each later `cordee env doctor {name}.toml` is held against it.
"""
_EFA = "/sys/class/infiniband/*/device/driver/module/drivers/pci:efa"


class ReadyEnvironment(NamedTuple):
    """One EDF of the catalogue; `about` is its first line."""

    name: str
    about: str


def ready_environments() -> list[ReadyEnvironment]:
    """Return what there is, by names."""
    found = [path.name[:-5] for path in _folder().iterdir() if path.name.endswith(".toml")]
    names = sorted(name for name in found if not name.startswith("fabric-"))
    return [ReadyEnvironment(name, _read(f"{name}.toml").splitlines()[0].lstrip("# ")) for name in names]


def fabric_here(root: str = "") -> str:
    """Return the fabric of this machine, the fastest that it has.

    Args:
        root: a folder that stands for the machine's root; empty: the machine.
    """
    if glob.glob(f"{root}/dev/cxi*"):
        return "slingshot"
    if glob.glob(root + _EFA):
        return "efa"
    return "infiniband" if glob.glob(f"{root}/sys/class/infiniband/*") else "ethernet"


def edf_of(name: str, fabric: str) -> str:
    """Return the text of an EDF with the settings of a fabric, below what vets its nodes and measures its baseline.

    Raises:
        UsageError: there is none of that name, or no such fabric.
    """
    known = [each.name for each in ready_environments()]
    for given, allowed, what in ((name, known, "ready environment"), (fabric, list(FABRICS), "fabric")):
        if given not in allowed:
            hint = did_you_mean(given, allowed, "name one of these")
            raise UsageError(f"there is no {what} {given}", given=given, allowed=allowed, next=hint)
    # On processors there is no NCCL, whose settings those of fabrics are.
    parts = (
        [_read(f"{name}.toml")] if name.endswith("-cpu") else [_read(f"{name}.toml"), _read(f"fabric-{fabric}.toml")]
    )
    tables: dict[str, list[str]] = {}
    for part in parts:
        for table, line in _lines(part):
            tables.setdefault(table, []).append(line)
    heads = [f"\n[{table}]\n" if table else "" for table in tables]
    texts = ["\n".join(lines).strip("\n") + "\n" for lines in tables.values()]
    return _ABOUT.format(name=name) + "".join(head + text for head, text in zip(heads, texts, strict=True))


def write_ready(name: str, fabric: str, folder: Path) -> list[Path]:
    """Write an EDF and its vetting protocol into a folder, and return both.

    Raises:
        UsageError: there is none of that name, or a file of that name is there already.
    """
    text = edf_of(name, fabric)
    protocol = _read(f"vet-{_PROTOCOLS[name.rpartition('-')[2]]}.yaml")
    written = {folder / f"{name}.toml": text, folder / f"{name}.vet.yaml": protocol}
    for path in written:
        if path.exists():
            raise UsageError(f"{path} is there already", given=str(path), next="take another folder: --to DIR")
    for path, content in written.items():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content, mode=0o644)
    return list(written)


def _lines(text: str) -> Iterator[tuple[str, str]]:
    table = ""
    for line in text.splitlines():
        match = _TABLE.match(line)
        if match:
            table = match[1]
        else:
            yield table, line


def _folder() -> Path:
    return Path(str(files(__package__))) / "catalogue"


def _read(name: str) -> str:
    return (_folder() / name).read_text(encoding="utf-8")
