"""The gate: what a job names is looked at before it is submitted, and what its run would keep before it is copied."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from cordee.client.adapters.loads import SEEN_FILE
from cordee.core.draw.clean import one_line
from cordee.core.findings import Finding
from cordee.core.passwords import passwords_in
from cordee.core.secret_forms import keys_in
from cordee.core.words import counted
from cordee.job.load import LoadedJob
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.job.plan.model import Plan
from cordee.machine.foreign_files import read_regular
from cordee.runs.folder import RunFolder, write_atomically
from cordee.systems.scan.locations import MOST_FILES, PROGRAMS, job_code, locations, seen_document, text_of
from cordee.systems.scan.moved.move import can_move_keys
from cordee.systems.scan.node.verdict import FileVerdict, Sight, worst
from cordee.systems.scan.packages.job import job_findings
from cordee.systems.scan.policy import ScanPolicy, demanded, policy_of
from cordee.systems.scan.rules import RULES

_MOST_S = 60.0
_MOST_FINDINGS = 10
_SETTINGS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".properties")
_LARGEST_SETTINGS = 1 << 20
_EXAMPLES = (".example", ".sample", ".template", ".dist")


class ScanExamination(Examination):
    """Models, checkpoints and data that a job names, keys in its document and its container's, and its code."""

    def __init__(self, loaded: LoadedJob, run_folder: Path) -> None:
        super().__init__(loaded, run_folder)
        self._policy = policy_of(loaded)
        self._code: list[str] = []
        self._findings: list[Finding] = []

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        policy = self._policy
        env: dict[str, str] = {"CORDEE_SCAN": policy.word} if policy.word else {}
        if policy.allowed:
            env["CORDEE_SCAN_ALLOW"] = json.dumps(policy.allowed)
        part: dict[str, Any] = {"policy": policy.word, "allow": list(policy.allowed)}
        if policy.word != "off":
            self._code = job_code(self.loaded, self.run_folder)
            part["held_back"] = self._held_back()
        return Contribution(part, [demanded(self.loaded)] if policy.demanded else [], env=env)

    def judge(self, plan: Plan) -> list[Finding]:
        if self._policy.word == "off":
            return []
        findings = list(_keys(self.loaded, plan))
        documents = {finding.file for finding in findings}
        findings += (finding for finding in self._findings if finding.file not in documents)
        named = (path for location in locations(self.loaded, plan, self._code) for path in location.files())
        own = {str(self.loaded.folder / name) for name in self._code if name.endswith(PROGRAMS)}
        files = list(itertools.islice((path for path in dict.fromkeys(named) if path not in own), MOST_FILES + 1))
        told = {finding.file for finding in findings}
        bad = [verdict for verdict in self._verdicts(files[:MOST_FILES]) if verdict.path not in told]
        bad = [one for one in map(_as_loaded, bad) if not one.trusted]
        bad.sort(key=lambda verdict: (verdict.verdict != "block", verdict.path))
        findings += itertools.islice((_finding(one, self._policy) for one in bad), _MOST_FINDINGS)
        findings += _more(bad, self._policy)
        findings += itertools.islice(job_findings(self.loaded, plan, self._policy), _MOST_FINDINGS)
        if len(files) > MOST_FILES:
            text = f"only {counted(MOST_FILES, 'file')} of what the job names were looked at"
            findings.append(Finding(text, "info", "scan-not-all", next="look at the rest once by `cordee scan`"))
        return findings

    def _held_back(self) -> list[str]:
        """Return the names of files that the snapshot must not carry, and keep what there is to say about them."""
        folder, asked = self.loaded.folder, self.loaded.job.scan.copy_anyway
        held_back, told = [], []
        for verdict in self._verdicts([str(folder / name) for name in self._code]):
            sight = _reason(verdict) or _setting(verdict.path)
            name = os.path.relpath(verdict.path, folder)
            if sight is None or any(fnmatch(name, pattern) for pattern in asked):
                continue
            held_back.append(name)
            if Path(verdict.path) != self.loaded.path:
                told.append(self._carried(verdict, sight))
        told.sort(key=lambda finding: (finding.severity, finding.file))
        self._findings = told[:_MOST_FINDINGS]
        if len(told) > _MOST_FINDINGS:
            severity = max(one.severity for one in told[_MOST_FINDINGS:]) if self._runs_copy else "warn"
            text = f"{counted(len(told) - _MOST_FINDINGS, 'more file')} of the job's folder hold keys or poison"
            self._findings.append(Finding(text, severity, "scan-more", next="`cordee scan .` names all"))
        return sorted(held_back)

    @property
    def _runs_copy(self) -> bool:
        return self.loaded.job.code == "snapshot"

    def _carried(self, verdict: FileVerdict, sight: Sight) -> Finding:
        """Return what is said of a file that the snapshot does not carry: an error where ranks run from that snapshot."""
        poisoned = not sight.rule.startswith("secret-")
        severity = "error" if self._runs_copy else self._policy.severity(verdict) if poisoned else "warn"
        where = f" ({sight.where})" if sight.where else ""
        consequence = (
            "ranks run from the snapshot, which does not carry it"
            if self._runs_copy
            else "the run's snapshot does not carry it"
        )
        name = os.path.relpath(verdict.path, self.loaded.folder)
        asked = f'`[scan] copy_anyway = ["{name}"]` has it copied as it is'
        first = (
            RULES[sight.rule].next
            if poisoned
            else f"`cordee scan --move-keys {verdict.path}` puts it into a file of your own"
            if sight in verdict.sights and can_move_keys(Path(verdict.path))
            else "take the key out, and give it by a file outside of the job's folder, or by variables of your shell"
        )
        return Finding(
            f"{sight.text}{where}; {consequence}",
            severity,
            f"scan-{sight.rule}",
            file=verdict.path,
            next=f"{first}; {asked}",
            evidence=verdict.document(),
        )

    def _verdicts(self, files: list[str]) -> list[FileVerdict]:
        """Return what is to be said of files, keys in them included; each is looked at once as long as nobody changes it."""
        if not files:
            return []
        from cordee.systems.scan.node.scanner import Scanner
        from cordee.systems.scan.seen import SeenVerdicts

        seen, allowed = SeenVerdicts(), self._policy.allowed
        with Scanner(allowed, min(4, len(os.sched_getaffinity(0)), 1 + len(files) // 16), secrets=True) as scanner:
            verdicts = list(seen.verdicts(scanner, files, allowed, time.monotonic() + _MOST_S))
        seen.close()
        return verdicts


def keep_scan(folder: RunFolder, loaded: LoadedJob, plan: Plan) -> tuple[str, ...]:
    """Write down for the ranks what was looked at; return the files that the snapshot does not carry."""
    if policy_of(loaded).word != "off":
        seen = seen_document(loaded, plan, job_code(loaded, folder.root), time.time())
        write_atomically(folder.root / SEEN_FILE, seen, durable=not plan.parent)
    part = plan.step.systems.get("scan") or {}
    return tuple(str(loaded.folder / name) for name in part.get("held_back", ()))


def _setting(path: str) -> Sight | None:
    """Return why a configuration is not copied: it is a file of variables, or gives a password, a token or a secret."""
    name = os.path.basename(path)
    if (name == ".env" or name.startswith(".env.")) and not name.endswith(_EXAMPLES):
        return Sight("secret-assigned", "warn", "a file of variables holds passwords and tokens as a rule", "")
    try:
        if not name.endswith(_SETTINGS) or os.stat(path).st_size > _LARGEST_SETTINGS:
            return None
        data = read_regular(path, None, _LARGEST_SETTINGS)
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", "replace")
    except OSError:
        return None
    found = next(passwords_in(text), None)
    line = found and f"line {text.count(chr(10), 0, found.begin) + 1}"
    return Sight("secret-assigned", "warn", "a password, token or secret stands here", line) if line else None


def _reason(verdict: FileVerdict) -> Sight | None:
    """Return why a file is not copied: a key, or a poisoned model; None: it is. What texts say to loaders is no model."""
    sights = (one for one in verdict.sights if one.severity == "block")
    return next((one for one in sights if verdict.kinds or one.rule.startswith("secret-")), None)


def _as_loaded(verdict: FileVerdict) -> FileVerdict:
    """Return the verdict on a file that is loaded, where a key in it is worth knowing and no poison."""
    sights = tuple(one._replace(severity="warn") if one.rule.startswith("secret-") else one for one in verdict.sights)
    return verdict._replace(verdict=worst(one.severity for one in sights), sights=sights)


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
    severity = "error" if any(policy.severity(one) == "error" for one in rest) else "warn"
    text = f"{counted(len(rest), 'more file')} of the kind"
    return [Finding(text, severity, "scan-more", next="`cordee scan PATH` names all")]


def _keys(loaded: LoadedJob, plan: Plan) -> Iterator[Finding]:
    """Yield the keys that stand in the document, and in those of the container."""
    environment = plan.step.environment
    documents = environment.files if environment else ()
    texts = [(loaded.file, loaded.text, "the document")]
    texts += [(file, text_of(Path(file)), "the container's document") for file in documents]
    for file, text, what in texts:
        for key in keys_in(text):
            line = text.count("\n", 0, key.begin) + 1
            rule = f"secret-{key.kind}"
            said = f"a key of the kind {key.kind} stands in {what}"
            yield Finding(said, "warn", f"scan-{rule}", file=file, line=line, next=RULES[rule].next)
