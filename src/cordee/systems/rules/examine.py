"""The rules of the site as a run's plan has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cordee.core.errors import DocumentError
from cordee.core.findings import Finding
from cordee.job.plan.examination import Contribution, Examination, ShownPaths


class RulesExamination(Examination):
    """The rules of `[rules] files` of the cluster's profile, frozen: what a run is judged by does not change while it goes on."""

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        files = self.loaded.cluster.rules.files
        if not files:
            return Contribution()
        from cordee.systems.rules.catalogue import resolved_rules, rule_paths  # deferred: most sites have no rules

        try:
            rules = resolved_rules(rule_paths(files), built_in=False)
        except DocumentError as error:
            return Contribution(findings=[_not_judged(error, Path(files[0]))])
        return Contribution({"rules": rules})


def _not_judged(error: DocumentError, path: Path) -> Finding:
    """Return that the site's rules are not judged in this run: a fault of the site's stops nobody's job."""
    first = error.findings[0] if error.findings else None
    file, line = (first.file, first.line) if first is not None else (error.file, error.line)
    text = f"the rules of the site are not judged in this run: {first.text if first is not None else error.text}"
    given = first.given if first is not None else error.given
    what = "tell the operators; `cordee rules check FILE` shows all that is wrong"
    return Finding(text, "warn", "rules-not-judged", file=file or str(path), line=line, given=given, next=what)
