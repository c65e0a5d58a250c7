"""A hang as commands, reports and pages show it: where its ranks stood."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cordee.core.draw.clean import few_ranges, ranges
from cordee.core.findings import Finding
from cordee.core.units import format_duration, utc_text
from cordee.core.web.findings import finding_line
from cordee.systems.explain.hang.evidence import Hang, hang_numbers, summary_of
from cordee.systems.explain.hang.stacks import merged, own_line, shown_tree, tree_lines
from cordee.systems.explain.hang.stands import ailing_nodes, alike, collectives

SCHEMA = "cordee.stacks/1"
_MOST_HANGS, _MOST_CALLS, _MOST_ROWS, _MOST_NAMED = 50, 2000, 100, 64


def causes_of(number: int, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings of a run that name the causes of one hang."""
    return [
        one
        for one in findings
        if one.rule.startswith("hang-") and isinstance(one.evidence, dict) and one.evidence.get("hang") == number
    ]


def hangs_document(run: Path, findings: list[Finding]) -> dict[str, Any]:
    """Return the newest hangs of a run for its page, each with its causes."""
    numbers = hang_numbers(run)
    found = []
    for number in reversed(numbers[-_MOST_HANGS:]):
        summary = summary_of(run, number)
        if summary is not None:
            causes = [_cause(one) for one in causes_of(number, findings)]
            found.append({**summary._asdict(), "causes": causes})
    return {"hangs": found, "total": len(numbers)}


def _cause(finding: Finding) -> dict[str, Any]:
    place = finding.place()
    ranks, nodes = place["ranks"], place["nodes"]
    return {
        **finding_line(finding.document()),
        "ranks": ranks[:_MOST_NAMED],
        "more_ranks": max(0, len(ranks) - _MOST_NAMED),
        "nodes": nodes[:_MOST_NAMED],
        "more_nodes": max(0, len(nodes) - _MOST_NAMED),
        "where": place["where"],
    }


class HangView:
    """One hang.

    Args:
        hang: what was collected of it.
    """

    def __init__(self, hang: Hang) -> None:
        self.hang = hang
        self._stacks = {rank: known.frames for rank, known in sorted(hang.ranks.items()) if known.frames}
        self.tree = merged(self._stacks)
        self.without = sorted(set(hang.ranks) - set(self._stacks))

    def stacks_document(self) -> dict[str, Any]:
        """Return the stacks as JSON: the merged tree, and each rank's line in the script."""
        return {
            "schema": SCHEMA,
            "hang": self.hang.number,
            "asked": self.hang.asked,
            "attempt": self.hang.attempt,
            "at": self.hang.declared_at,
            "ranks": {str(rank): own_line(frames) for rank, frames in self._stacks.items()},
            "without": self.without,
            "tree": self.tree.document(),
        }

    def page_document(self) -> dict[str, Any]:
        """Return what the page shows: no longer for many ranks than for some."""
        hang = self.hang
        same, waits, nodes = alike(hang), collectives(hang), ailing_nodes(hang)
        codes = sorted({"not known" if code is None else str(code) for code in hang.ended.values()})
        return {
            "number": hang.number,
            "attempt": hang.attempt,
            "at": hang.declared_at,
            "asked": hang.asked,
            "world": hang.world,
            "stacks": len(self._stacks),
            "without": {"count": len(self.without), "ranks": few_ranges(self.without)},
            "ended": {"count": len(hang.ended), "ranks": few_ranges(list(hang.ended)), "codes": codes[:8]},
            "tree": shown_tree(self.tree, _MOST_CALLS),
            "alike": same[:_MOST_ROWS],
            "alike_total": len(same),
            "collectives": waits[:_MOST_ROWS],
            "collectives_total": len(waits),
            "nodes": nodes[:_MOST_ROWS],
            "nodes_total": len(nodes),
        }

    def stacks_lines(self, *, every_frame: bool = False) -> Iterator[str]:
        """Yield where the ranks stood, and of whom it is not known."""
        hang = self.hang
        lasted = format_duration(max(0.0, hang.declared_at - hang.since))
        about = "where its ranks stood" if hang.asked else f"no rank had gone on for {lasted}"
        what = "question" if hang.asked else "hang"
        yield f"{what} {hang.number}, attempt {hang.attempt}: {utc_text(hang.declared_at)}, {about}"
        yield from tree_lines(self.tree, every_frame=every_frame)
        if self.without:
            yield f"no stack of {'rank' if len(self.without) == 1 else 'ranks'} {ranges(self.without[:64])}"
        if hang.ended:
            yield f"ended before: {'rank' if len(hang.ended) == 1 else 'ranks'} {ranges(sorted(hang.ended)[:64])}"
