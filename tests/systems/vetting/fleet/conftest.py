"""A history that is written as vettings write it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.vetting.node.judge.record import write
from cordee.systems.vetting.node.judge.rules import match
from cordee.systems.vetting.rules import load_rules

RULES = load_rules()


def result(check: str, status: str = "pass", evidence: str = "", **more: Any) -> dict[str, Any]:
    """Return the document of a result, under the rule that matches it."""
    document = {"check": check, "name": check, "status": status, "evidence": evidence, "required": True, **more}
    return {**document, "rule": match(RULES, document)}


def vetting(job: str | None, *, days_ago: float = 0.0, **more: Any) -> dict[str, Any]:
    """Return an allocation document; `nodes` is node to (verdict, results)."""
    nodes = more.pop("nodes", {"n1": ("healthy", [result("host.memory")])})
    return {
        "schema": "cordee.vetting/1",
        "protocol": "training",
        "digest": "d1",
        "cluster": None,
        "run": None,
        "user": "ada",
        "job": job,
        "at": time.time() - days_ago * 86400,
        "seconds": 1.5,
        "verdict": "exclude" if any(verdict == "bad" for verdict, _ in nodes.values()) else "continue",
        "exclude": [],
        "reason": "as it is",
        "unavailable": [],
        "confused": [],
        "links": [],
        "pairs": [],
        "nodes": [{"node": name, "verdict": verdict, "results": results} for name, (verdict, results) in nodes.items()],
        **more,
    }


def slow(node: str, job: str | None, partners: tuple[str, ...] = ("p1", "p2"), **more: Any) -> dict[str, Any]:
    """Return a vetting in which a node exchanged data slowly with these partners."""
    text = "11 GB/s, at least 19.4 GB/s (0.88 x P75 of 8 nodes)"
    bad = result("pair.bandwidth", "fail", text, value=11e9, unit="B/s", reference={"kind": "peer"})
    good = result("pair.bandwidth", value=22e9, unit="B/s")
    pairs = [{"round": 1, "nodes": [node, partner], "bytes_per_s": 11e9} for partner in partners]
    nodes = {node: ("bad", [bad]), **{partner: ("healthy", [good]) for partner in partners}}
    return vetting(job, nodes=nodes, pairs=pairs, **more)


def broken(node: str, job: str | None, **more: Any) -> dict[str, Any]:
    """Return a vetting in which a GPU of a node had fallen off the bus."""
    bad = result("gpu.xid", "fail", "GPU 3: XID 79", facts={"xids": [79], "devices": [{"device": 3, "uuid": "GPU-3"}]})
    return vetting(job, nodes={node: ("bad", [bad]), "p1": ("healthy", [])}, **more)


def clean(node: str, job: str | None, checks: tuple[str, ...] = ("pair.bandwidth",), **more: Any) -> dict[str, Any]:
    """Return a vetting in which these checks of a node passed."""
    return vetting(job, nodes={node: ("healthy", [result(check, value=22e9) for check in checks])}, **more)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty history; the index and other state of the person lie beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "history"


@pytest.fixture
def remember(folder: Path) -> Callable[..., None]:
    """Writes vettings into the history."""

    def remember(*documents: dict[str, Any]) -> None:
        for document in documents:
            write(document, {"folder": str(folder)})

    return remember
