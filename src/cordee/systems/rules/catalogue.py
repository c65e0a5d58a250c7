"""Which rules there are: a site's own files, read only where nobody else could have written them, and ours."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cordee.core.documents.faults import fault_error
from cordee.core.documents.rule_files import read_rule_file, trial_findings
from cordee.core.findings import Finding
from cordee.systems.rules.model import RunExample, RunRule, RunRuleFile
from cordee.systems.rules.node.judge import RuleJudge, RulePlace, about_event, holds

BUILT_IN = Path(__file__).with_name("builtin.yaml")
MOST_FILES, MOST_RULES = 200, 1000


def rule_paths(given: Iterable[str | Path]) -> list[Path]:
    """Return the files of rules: those that are given, and of folders all `*.yaml` in the order of their names.

    Raises:
        DocumentError: there are too many.
    """
    found: list[Path] = []
    for path in (Path(os.path.expandvars(name)).expanduser() for name in given):
        found += sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if len(found) > MOST_FILES:
        text, file = "there are too many files of rules", str(found[0].parent)
        what = "put several rules into one file"
        raise fault_error(text, "too-many", file=file, given=len(found), allowed=f"at most {MOST_FILES}", next=what)
    return found


def read_run_rules(paths: Sequence[Path]) -> list[tuple[Path, RunRule]]:
    """Return the rules of some files, each with its file; where two have one id, the first counts.

    Raises:
        DocumentError: a file cannot be read, is wrong, or others can write to it; or there are too many rules.
    """
    found: dict[str, tuple[Path, RunRule]] = {}
    for path in paths:
        if path != BUILT_IN:
            _refuse_foreign(path)
        for rule in read_rule_file(path, RunRuleFile).rules:
            found.setdefault(rule.id, (path, rule))
        if len(found) > MOST_RULES:
            text, what = "there are too many rules", "keep those that still tell something"
            allowed = f"at most {MOST_RULES} in all files"
            raise fault_error(text, "too-many", file=str(path), given=len(found), allowed=allowed, next=what)
    return list(found.values())


def resolved_rules(paths: Sequence[Path], built_in: bool = True) -> list[dict[str, Any]]:
    """Return rules as a plan holds them, with ours behind them unless they are not asked for.

    Raises:
        DocumentError: as `read_run_rules`.
    """
    files = [*paths, *([BUILT_IN] if built_in else [])]
    return [rule.resolved("cordee" if path == BUILT_IN else str(path)) for path, rule in read_run_rules(files)]


def tried_rules(paths: Sequence[Path]) -> list[Finding]:
    """Return which rules do not match their example, or match their counterexample.

    Raises:
        DocumentError: as `read_run_rules`.
    """
    found = []
    for path, rule in read_run_rules(paths):
        found += trial_findings(str(path), rule.id, _takes(rule, rule.example), _takes(rule, rule.counterexample))
    return found


def _takes(rule: RunRule, example: RunExample) -> bool:
    """Return whether a rule matches what an example stands for."""
    resolved = rule.resolved("")
    when = resolved["when"]
    if "metric" in when:
        if example.metric != when["metric"] or example.value is None:
            return False
        judge = RuleJudge([resolved])
        place = RulePlace(
            () if example.node is None else (example.node,), () if example.rank is None else (example.rank,)
        )
        return any(judge.window(resolved, place, at, example.value) for at in range(example.times))
    if "runs" in when:
        there = all(holds(when, about_event(event)) for event in example.events())
        return there and example.runs >= when["runs"] and (when["same"] == "job" or example.node is not None)
    judge = RuleJudge([resolved])
    return any(judge.event(event) for event in example.events())


def _refuse_foreign(path: Path) -> None:
    """Refuse a file into which somebody else than root and this user can write.

    Raises:
        DocumentError: others can.
    """
    try:
        status = path.stat()
    except OSError:
        return  # that it cannot be read is said where it is read
    mode = status.st_mode
    group_is_own = status.st_gid == os.getegid() and status.st_uid == os.geteuid()
    who = None
    if status.st_uid not in (0, os.geteuid()):
        who = f"it belongs to user {status.st_uid}"
    elif mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not group_is_own):
        who = f"its mode is {stat.S_IMODE(mode):04o}"
    elif (above := path.resolve().parent.stat()).st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        who = f"everybody may replace it: the mode of {path.resolve().parent} is {stat.S_IMODE(above.st_mode):04o}"
    if who is not None:
        text, what = "others can write to this file of rules", "chown it to root or yourself, and chmod go-w"
        allowed = "a file of root or your own, which nobody else can write to"
        raise fault_error(text, "foreign-rules", file=str(path), given=who, allowed=allowed, next=what)
