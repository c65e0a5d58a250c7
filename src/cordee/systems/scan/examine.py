"""The gate: what a job names is looked at before it is submitted."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from cordee.core.draw.clean import one_line
from cordee.core.findings import Finding
from cordee.core.secrets import keys_in
from cordee.core.words import counted
from cordee.job.load import LoadedJob
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.job.plan.model import Plan
from cordee.systems.scan.node.verdict import FileVerdict
from cordee.systems.scan.policy import ScanPolicy, demanded, policy_of
from cordee.systems.scan.rules import RULES

# Data sets of millions of files are looked at by `cordee scan`; a gate that takes minutes is switched off.
_MOST_FILES, _MOST_OF_DATA, _MOST_S = 2_000, 200, 60.0
_MOST_FINDINGS = 10
_PROGRAMS = (".py", ".sh")


class ScanExamination(Examination):
    """Models, checkpoints and data that a job names, and keys in its document."""

    def __init__(self, loaded: LoadedJob, run_folder: Path) -> None:
        super().__init__(loaded, run_folder)
        self._policy = policy_of(loaded)

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        policy = self._policy
        env: dict[str, str] = {"CORDEE_SCAN": policy.word} if policy.word else {}
        if policy.allowed:
            env["CORDEE_SCAN_ALLOW"] = json.dumps(policy.allowed)
        return Contribution(findings=[demanded(self.loaded)] if policy.demanded else [], env=env)

    def judge(self, plan: Plan) -> list[Finding]:
        if self._policy.word == "off":
            return []
        files = list(itertools.islice(_files(self.loaded, plan), _MOST_FILES + 1))
        findings = list(_keys(self.loaded))
        if files:
            findings += self._looked_at(files[:_MOST_FILES])
        if len(files) > _MOST_FILES:
            text = f"only {counted(_MOST_FILES, 'file')} of what the job names were looked at"
            findings.append(Finding(text, "info", "scan-not-all", next="look at the rest once by `cordee scan`"))
        return findings

    def _looked_at(self, files: list[str]) -> list[Finding]:
        from cordee.systems.scan.node.scanner import Scanner
        from cordee.systems.scan.seen import SeenVerdicts

        seen = SeenVerdicts()
        allowed = self._policy.allowed
        with Scanner(allowed, min(4, len(os.sched_getaffinity(0)))) as scanner:
            verdicts = list(seen.verdicts(scanner, files, allowed, time.monotonic() + _MOST_S))
        seen.close()
        bad = [verdict for verdict in verdicts if not verdict.trusted]
        bad.sort(key=lambda verdict: (verdict.verdict != "block", verdict.path))
        return [
            *itertools.islice((_finding(one, self._policy) for one in bad), _MOST_FINDINGS),
            *_more(bad, self._policy),
        ]


def _finding(verdict: FileVerdict, policy: ScanPolicy) -> Finding:
    sight = max(verdict.sights, key=lambda one: ("warn", "unknown", "block").index(one.severity))
    where = f" ({one_line(sight.where, 100)})" if sight.where else ""
    what = RULES[sight.rule].next if sight.rule in RULES else None
    return Finding(
        f"{sight.text}{where}",
        policy.severity(verdict),
        f"scan-{sight.rule}",
        file=verdict.path,
        next=what,
        evidence=verdict.document(),
    )


def _more(bad: list[FileVerdict], policy: ScanPolicy) -> list[Finding]:
    if len(bad) <= _MOST_FINDINGS:
        return []
    rest = bad[_MOST_FINDINGS:]
    worst = "error" if any(policy.severity(one) == "error" for one in rest) else "warn"
    return [
        Finding(
            f"{counted(len(rest), 'more file')} of the kind", worst, "scan-more", next="`cordee scan PATH` names all"
        )
    ]


def _keys(loaded: LoadedJob) -> Iterator[Finding]:
    """Yield the keys that stand in the document."""
    for key in keys_in(loaded.text):
        line = loaded.text.count("\n", 0, key.begin) + 1
        rule = f"secret-{key.kind}"
        text = f"a key of the kind {key.kind} stands in the document"
        yield Finding(text, "warn", f"scan-{rule}", file=loaded.file, line=line, next=RULES[rule].next)


def _files(loaded: LoadedJob, plan: Plan) -> Iterator[str]:
    """Yield what the job would load: its checkpoints, what its command names, and some of its data sets that lie here; each once."""
    step, told = plan.step, set()
    places = [(step.checkpoint.path, _MOST_FILES)] if step.checkpoint.declared else []
    places += [(path, _MOST_FILES) for path in _paths(step.tasks.argv, loaded.folder)]
    places += [
        (str(loaded.folder / one.source), _MOST_OF_DATA) for one in loaded.job.data.values() if "://" not in one.source
    ]
    for place, most in places:
        for path in itertools.islice(_below(place), most):
            if path not in told:
                told.add(path)
                yield path


def _paths(argv: Sequence[str], folder: Path) -> Iterator[str]:
    """Yield what a command names: files that are no scripts, and folders in which the job does not lie itself."""
    for word in argv[1:]:
        value = word.partition("=")[2] if word.startswith("-") else word
        if value and not value.endswith(_PROGRAMS) and "://" not in value and "\0" not in value:
            path = folder / value
            if not folder.resolve().is_relative_to(path.resolve()):
                yield str(path)


def _below(place: str) -> Iterator[str]:
    if os.path.isfile(place):
        yield place
    elif os.path.isdir(place):
        for folder, folders, names in os.walk(place):
            folders.sort()
            yield from (path for name in sorted(names) if os.path.isfile(path := os.path.join(folder, name)))
