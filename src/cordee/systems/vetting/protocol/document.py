"""Reads a protocol: the YAML list of what is looked at on every node, into what the node side gets."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cordee.core.documents.faults import document_error, fault_error
from cordee.core.documents.yaml_lines import YamlDocument, read_yaml
from cordee.core.findings import Finding
from cordee.core.words import did_you_mean
from cordee.systems.vetting.node.checks import Parameter
from cordee.systems.vetting.protocol.evals import Eval, Types, read_eval, requirements_of
from cordee.systems.vetting.protocol.faults import Faults
from cordee.systems.vetting.protocol.site import SITE, ProtocolSite, folders_of_checks, prepared_for, site_values
from cordee.systems.vetting.protocol.types import PAIR, eval_type

SCHEMA = "cordee.protocol/1"
BUILT_IN = {
    "quick": "memory, load and disk of every node: less than a second",
    "host": "all that a host says of itself, its links, storage and memory, compared over the nodes",
    "gpu": "what the GPUs say of themselves: there, healthy, cool, free and not throttled",
    "full": "host and gpu, then speed and correctness of every GPU and of the network between the nodes",
}
MOST_EVALS = 10_000
SCHEDULERS = ("slurm", "standalone")
CONFUSION_RATIO = 0.3
_BUILT_IN_FOLDER = Path(__file__).parent / "protocols"
_LONGEST_DEFAULT_S = 600.0
_SLACK_S = 5.0
_PAIRS_S = 60.0
_FIRST_NUMBER = re.compile(r"\s*1[ \t]+\S")
_NUMBERED = re.compile(r" *(\d{1,5})(?: |\Z)( *)(.*)\Z")
PIP = (Parameter("index_url", "text", "where packages come from"),)
TOP = (
    Parameter("name", "text", "what the protocol is called", needed=True),
    Parameter("evals", "list", "what is looked at", needed=True),
    Parameter("scheduler", "text", "vetnode's; who made the allocation is found out here", choices=SCHEDULERS),
    Parameter("pip", "table", "vetnode's: `index_url` of the packages that `requirements` name"),
    Parameter("deadline", "duration", "for everything together", unit="s"),
    Parameter("required", "boolean", "whether evals that do not say so themselves are required", default=True),
    Parameter(
        "confusion",
        "ratio",
        "a larger share of nodes flagged by comparison points to a shared cause, and no node is judged by it",
        CONFUSION_RATIO,
    ),
    Parameter("min_nodes", "count", "fewest healthy nodes that are of use"),
    Parameter("history", "text", "where results are kept: `site`, a folder or the URL of a collector"),
)


@dataclass(frozen=True)
class Protocol:
    """A valid protocol.

    Attributes:
        path, text: as given.
        name: what it is called.
        evals: what is looked at.
        deadline_s: for everything together.
        scheduler, index_url: vetnode's `scheduler` and `pip.index_url`.
        confusion_ratio: a larger share of nodes flagged by comparison points to a shared cause, and no node is judged by it.
        min_nodes: fewest healthy nodes that are of use; None: all.
        site: what the cluster's profile adds: `python` (that has what is required), `rules`, `history`, `baseline`, `switches`.
        findings: what is worth saying although nothing is wrong.
    """

    path: Path
    text: str
    name: str
    evals: tuple[Eval, ...]
    deadline_s: float
    scheduler: str | None = None
    index_url: str | None = None
    confusion_ratio: float = CONFUSION_RATIO
    min_nodes: int | None = None
    site: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = field(default=())

    @property
    def requirements(self) -> list[str | list[str]]:
        """What the evals need installed, each once: a package, or a package with pip's options."""
        return requirements_of(self.evals)

    def resolved(self) -> dict[str, Any]:
        """Return the `cordee.protocol/1` document: all that the node side gets to see."""
        checks = [check for one in self.evals for check in one.checks]
        classes = {one.type: one.place for one in self.evals if one.place}
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "name": self.name,
            "deadline_s": self.deadline_s,
            "checks": checks,
            "pairs": _pairs([one.pairs for one in self.evals if one.pairs]),
            "classes": classes,
            "scopes": {check["name"]: one.scope for one in self.evals for check in one.checks if one.scope},
            "requirements": self.requirements,
            "policy": {"confusion_ratio": self.confusion_ratio, "min_nodes": self.min_nodes},
        }
        code = {place: _content(place) for place in classes.values()}
        digest = hashlib.sha256(json.dumps([document, code], sort_keys=True).encode()).hexdigest()
        return {**document, "digest": f"sha256:{digest}", **self.site}


def _content(place: str) -> str | None:
    """Return what stands for the content of a class's file, None where it is not in a file that can be read."""
    try:
        return hashlib.sha256(Path(place.rpartition(":")[0]).read_bytes()).hexdigest()
    except OSError:
        return None


def load_protocol(
    given: str | Path, site: ProtocolSite | None = None, *, history: str | bool | None = None
) -> Protocol:
    """Return the protocol in a YAML file, or one of those that come with Cordée.

    Args:
        given: path of the file, or a name of `BUILT_IN`.
        site: what the profile of its cluster says; None: nothing.
        history: goes before the protocol's own: a folder (a relative one is below the working directory), a URL, True for
            what the profile says, False for nowhere.

    Raises:
        DocumentError: it is missing, unreadable or wrong; all its faults are in `findings`, each with its line.
    """
    document = read_yaml(protocol_path(given), without_printed_numbers)
    faults = Faults(document)
    if without_printed_numbers(document.text) is not document.text:
        faults.note((), "the numbers before its lines are left out", "printed-numbers")
    protocol = _read(document, site or ProtocolSite(), history, faults)
    if faults.errors or protocol is None:
        raise document_error(faults.errors)
    return protocol


def protocol_path(given: str | Path, folder: Path | None = None) -> Path:
    """Return the file that a name of `BUILT_IN` or a path means.

    Args:
        given: the name or path.
        folder: where a relative path begins; None: the working directory.

    Raises:
        DocumentError: there is no such file; names the nearest.
    """
    if given in BUILT_IN:
        return _BUILT_IN_FOLDER / f"{given}.yaml"
    path = (folder or Path.cwd()) / os.path.expanduser(given)
    if path.exists():
        return path
    beside = path.parent
    names = [found.name for pattern in ("*.yaml", "*.yml") for found in beside.glob(pattern)]
    raise fault_error(
        f"there is no protocol {given}",
        "no-document",
        given=str(given),
        allowed=f"a YAML file in {beside}, or one of {', '.join(BUILT_IN)}",
        next=did_you_mean(path.name, [*BUILT_IN, *names], "write it, or choose one that is built in"),
    )


def _read(document: YamlDocument, site: ProtocolSite, history: str | bool | None, faults: Faults) -> Protocol | None:
    values = document.values
    if not isinstance(values, dict):
        given = "nothing" if values is None else "a list" if isinstance(values, list) else str(values)[:200]
        what = 'begin with `name: "..."` and `evals:`'
        faults.add((), "is not a protocol", given=given, allowed="a table with name and evals", next=what)
        return None
    top = faults.parameters((), values, TOP)
    pip = faults.table(("pip",), values.get("pip"), PIP)
    base = document.path.parent
    types = partial(eval_type, base=base, folders=folders_of_checks(site, base))
    evals = _evals(values.get("evals"), top.get("required", True), types, faults)
    where = top.get("history") if history is None else SITE if history is True else history or None
    beside = site_values(site, where, base if history is None else Path.cwd(), faults)
    beside["python"] = None if faults.errors else _python(requirements_of(evals), site, faults)
    _refuse_twins(evals, faults)
    return Protocol(
        path=document.path,
        text=document.text,
        name=top.get("name", ""),
        evals=tuple(evals),
        deadline_s=_deadline(top.get("deadline"), evals, faults),
        scheduler=top.get("scheduler"),
        index_url=pip.get("index_url"),
        confusion_ratio=top.get("confusion", CONFUSION_RATIO),
        min_nodes=top.get("min_nodes"),
        site=beside,
        findings=tuple(faults.notes),
    )


def _python(required: list[str | list[str]], site: ProtocolSite, faults: Faults) -> str | None:
    """Return the interpreter that was prepared for what is required; says how to prepare it when there is none."""
    found = prepared_for(required, site)
    if required and found is None:
        names = ", ".join(entry if isinstance(entry, str) else entry[0] for entry in required)
        text = f"{names} are required, and no environment is prepared: the ranks' own Python must have them"
        faults.note(("evals",), text, "not-prepared", next="`cordee vet prepare` with this protocol makes one")
    return None if found is None else str(found)


def without_printed_numbers(text: str) -> str:
    """Return a text without the line numbers of a printed listing; any other text as it is.

    A blank that was lost with a number is put back: an odd indentation becomes the next even one.
    """
    if not _FIRST_NUMBER.match(text):
        return text
    lines = text.split("\n")
    matches = [_NUMBERED.match(line) for line in lines]
    filled = sum(1 for line in lines if line.strip())
    if [int(match[1]) for match in matches if match] != list(range(1, filled + 1)):
        return text
    return "\n".join(" " * (len(match[2]) % 2) + match[2] + match[3] if match else "" for match in matches)


def _evals(values: Any, required: bool, types: Types, faults: Faults) -> list[Eval]:
    if values is None:
        return []
    if not isinstance(values, list) or not values:
        what = "list them as `- name: ...` with a `type: ...` below"
        given = "an empty list" if values == [] else str(values)[:200]
        faults.add(("evals",), "evals is not a list of evals", given=given, allowed="at least one eval", next=what)
        return []
    if len(values) > MOST_EVALS:
        allowed = f"at most {MOST_EVALS}"
        faults.add(
            ("evals",), "there are too many evals", given=len(values), allowed=allowed, next="split the protocol"
        )
        return []
    found = [read_eval(index, value, required, types, faults) for index, value in enumerate(values)]
    return [one for one in found if one is not None]


def _refuse_twins(evals: list[Eval], faults: Faults) -> None:
    names: dict[str, int] = {}
    pairs: Eval | None = None
    for one in evals:
        if one.name in names:
            text = f"there are two evals named {one.name}; the first is in line {names[one.name]}"
            faults.add(("evals", one.index, "name"), text, given=one.name, allowed="each name once", next="rename one")
        names.setdefault(one.name, faults.line(("evals", one.index)) or 1)
        if one.type == PAIR and pairs is not None:
            text = f"the pairs are tested twice; {pairs.name} does already"
            faults.add(("evals", one.index), text, given=PAIR, allowed="one eval of this type", next="remove one")
        pairs = one if one.type == PAIR else pairs


def _deadline(given: float | None, evals: list[Eval], faults: Faults) -> float:
    if given is not None:
        if given <= 0:
            faults.add(
                ("deadline",), "deadline is no time at all", given=given, allowed="more than 0 s", next="raise it"
            )
        return given
    timed = [(check["deadline_s"], alone) for one in evals for check, alone in zip(one.checks, one.alone, strict=True)]
    together = max((seconds for seconds, alone in timed if not alone), default=0.0)
    apart = sum(seconds for seconds, alone in timed if alone)
    pairs = _PAIRS_S if any(one.pairs for one in evals) else 0.0
    return float(min(_LONGEST_DEFAULT_S, together + apart + pairs + _SLACK_S))


def _pairs(settings: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return one test of pairs that is as strict as all that were asked for, None when none was."""
    if not settings:
        return None
    first = settings[0]
    thresholds = [one["min_bandwidth"] for one in settings if "min_bandwidth" in one]
    payloads = [one["payload"] for one in settings if "payload" in one]
    deadlines = [one["deadline_s"] for one in settings if one["deadline_s"]]
    return {
        "name": first["name"],
        "required": any(one["required"] for one in settings),
        "deadline_s": max(deadlines, default=None),
        "backend": "torch" if any(one["backend"] == "torch" for one in settings) else "tcp",
        "payload_bytes": max(payloads, default=None),
        "seconds": max(one["seconds"] for one in settings),
        "min_bandwidth_bytes_per_s": max(thresholds, default=None),
        "ratio": max(one["min_ratio"] for one in settings),
        "rounds": max(one["rounds"] for one in settings),
        "retests": max(one["retests"] for one in settings),
    }
