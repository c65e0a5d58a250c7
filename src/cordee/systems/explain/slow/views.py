"""Who is slow in a run, by how much, since when, why, and who would take their place: as data and as lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cordee.core.findings import Finding
from cordee.core.units import utc_text
from cordee.machine.foreign_files import read_json
from cordee.runs.folder import RunFolder
from cordee.runs.state import NodeState, RunState
from cordee.systems.explain.node.slow.watch import STANDING
from cordee.systems.explain.node.slow.words import OVER

SCHEMA = "cordee.stragglers/1"
_PREFIX = "straggler-"
_MOST_ROWS = 50
_COLUMNS = ("rank", "node", "slower by", "waits", "peers wait", "since", "why")


@dataclass(frozen=True)
class StragglerView:
    """What is known of stragglers.

    Attributes:
        state: of the run.
        standing: what the supervisor has written last, empty where it has not; see `cordee.systems.explain.node.slow.watch`.
        told: the findings about stragglers, the oldest first.
    """

    state: RunState
    standing: dict[str, Any]
    told: tuple[Finding, ...]

    @property
    def slow(self) -> list[dict[str, Any]]:
        """Who is slow now, or was when the run ended."""
        return list(self.standing.get("slow", ()))

    def replacements(self) -> list[dict[str, str]]:
        """Return which nodes are left out at the next restart, and which ones would take their places: `{node, why, by}`."""
        active = [node for node in self.state.nodes if node.suspected and node.role == "active"]
        spares = [node for node in self.state.nodes if _can_stand_in(node)]
        by = [spare.node for spare in spares]
        return [
            {"node": node.node, "why": node.suspected, "by": by[at] if at < len(by) else ""}
            for at, node in enumerate(active)
        ]

    def document(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {
            "schema": SCHEMA,
            "run": self.state.run,
            "state": self.state.state,
            "on": self.standing.get("on"),
            "action": self.standing.get("action"),
            "attempt": self.standing.get("attempt"),
            "at": self.standing.get("at"),
            "ranks": self.standing.get("ranks"),
            "heard": self.standing.get("heard"),
            "slow": self.slow,
            "spikes": self.standing.get("spikes", {}),
            "replacements": self.replacements(),
            "findings": [{**one.document(), **one.place()} for one in self.told],
        }

    def lines(self, dry_run: bool = False) -> Iterator[str]:
        """Yield it as text.

        Args:
            dry_run: only what the next restart would change.
        """
        if dry_run:
            yield from self._restart_lines()
            return
        yield self._headline()
        rows = [_row(one) for one in self.slow[:_MOST_ROWS]]
        if rows:
            yield from _table([_COLUMNS, *rows])
        if len(self.slow) > _MOST_ROWS:
            yield f"and {len(self.slow) - _MOST_ROWS} more: see --json"
        for proof in sorted({proof["text"] for one in self.slow for proof in one.get("proof", ())}):
            yield f"known of a node: {proof}"
        spikes = self.standing.get("spikes", {})
        if spikes:
            most = ", ".join(f"rank {rank} ({count})" for rank, count in list(spikes.items())[:5])
            yield f"short spikes, counted and not told: {sum(spikes.values())}, most of {most}"
        before = [one for one in self.told if one.rule != OVER]
        if before:
            yield f"told in this run: {len(before)} times; the newest: {before[-1].text}"
            yield f"  next: {before[-1].next}"
        if any(node.suspected for node in self.state.nodes):
            yield from self._restart_lines()

    def _headline(self) -> str:
        if not self.standing:
            return "nothing is known of stragglers: no attempt of this run has been looked at"
        attempt, heard, ranks = (self.standing.get(key) for key in ("attempt", "heard", "ranks"))
        about = f"attempt {attempt}: {heard} of {ranks} ranks tell what they do with their time"
        if not self.standing.get("on"):
            return f"{about.partition(':')[0]}: nobody looks for stragglers (`cordee stragglers {self.state.run} --on`)"
        if not heard:
            return f"{about}: none is judged; their scripts import no torch, or have not begun"
        if not self.slow:
            return f"{about}; no straggler"
        return f"{about}; {len(self.slow)} slow at {utc_text(self.standing['at'])}"

    def _restart_lines(self) -> Iterator[str]:
        if self.standing.get("action") != "replace" and not self.replacements():
            yield 'the next restart changes no node: [observe] stragglers_action is "report"'
            suspects = sorted(self._suspects())
            if suspects:
                yield f'with "replace" others would take the place of {", ".join(suspects)}'
            return
        found = self.replacements()
        if not found:
            yield "the next restart changes no node: none is suspected"
        for one in found:
            place = f"{one['by']} takes its place" if one["by"] else "no spare node is left: it stays"
            yield f"at the next restart {one['node']} is vetted again, and {place} ({one['why']})"

    def _suspects(self) -> set[str]:
        return {one["node"] for one in self.slow if one.get("cause") not in ("data", "saving")}


def straggler_view(folder: RunFolder, state: RunState) -> StragglerView:
    """Return what a run's folder says; what cannot be read counts as not there."""
    try:
        standing = read_json(folder.control / STANDING, folder.root)
    except (OSError, ValueError):
        standing = {}
    if not isinstance(standing, dict) or standing.get("schema") != SCHEMA:
        standing = {}
    told = tuple(one for one in state.findings if one.rule.startswith(_PREFIX))
    return StragglerView(state, standing, told)


def _can_stand_in(node: NodeState) -> bool:
    return node.role == "spare" and node.verdict in ("healthy", "suspect") and not node.suspected


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(one.get("rank")),
        str(one.get("node") or "-"),
        f"{100 * one.get('slower', 0):.0f} %",
        f"{100 * one.get('share', 0):.0f} %",
        f"{100 * one.get('peers_share', 0):.0f} %",
        utc_text(float(one.get("since", 0))),
        str(one.get("why", "")),
    )


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
