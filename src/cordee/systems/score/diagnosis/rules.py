"""Rules of diagnosis: read from TOML, checked with file and line, each tried on its own fixtures.

A site's rules come before the person's, both before the package's: `--rules FILE`, then `*.toml` of
`/etc/cordee/score-rules.d`, of `~/.config/cordee/score-rules.d`, then ours. `CORDEE_SCORE_RULES_PATH` replaces the two folders.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cordee.core.documents.config_paths import config_folder
from cordee.core.documents.files import read_text, toml_values
from cordee.core.documents.toml_lines import find_line
from cordee.core.errors import DocumentError
from cordee.core.findings import Finding
from cordee.core.words import did_you_mean
from cordee.systems.score.diagnosis.expression import Condition
from cordee.systems.score.features import FEATURES
from cordee.systems.score.result import CLASSES, UNKNOWN

PACKAGE_FILE = Path(__file__).parents[1] / "data" / "rules.toml"
SITE_FOLDER = Path("/etc/cordee/score-rules.d")
KINDS = ("gpu", "cpu")
_KEYS = ("class", "kind", "title", "when", "advice", "gain", "fixture")


@dataclass(frozen=True)
class Fixture:
    """Features of a window, and the class that all rules together must give it."""

    features: Mapping[str, float]
    name: str
    line: int | None


@dataclass(frozen=True)
class ScoreRule:
    """One rule; `gain` names the feature whose share of the time would remain, empty where nothing can be said."""

    name: str
    kind: str
    title: str
    when: tuple[Condition, ...]
    advice: tuple[str, ...]
    gain: str
    fixtures: tuple[Fixture, ...]
    file: str
    line: int | None


def load_rules(paths: Sequence[Path | str] = (), environ: Mapping[str, str] = os.environ) -> list[ScoreRule]:
    """Return all rules in the order in which they are tried.

    Args:
        paths: files that come first.

    Raises:
        DocumentError: a file cannot be read or holds something that is no rule; says the line.
    """
    files = [Path(path) for path in paths]
    given = environ.get("CORDEE_SCORE_RULES_PATH")
    folders = [SITE_FOLDER, config_folder(environ) / "score-rules.d"]
    if given is not None:
        folders = [Path(part) for part in given.split(os.pathsep) if part]
    for folder in folders:
        files += sorted(folder.glob("*.toml"))
    return [rule for file in (*files, PACKAGE_FILE) for rule in read_rules(file)]


def read_rules(path: Path) -> list[ScoreRule]:
    """Return the rules of one file.

    Raises:
        DocumentError: see `load_rules`.
    """
    return list(_parsed(path, read_text(path, "a TOML file")))


@lru_cache(maxsize=32)
def _parsed(path: Path, text: str) -> tuple[ScoreRule, ...]:
    document = toml_values(text, str(path))
    tables = document.get("rule")
    if not isinstance(tables, list) or set(document) != {"rule"}:
        other = sorted(set(document) - {"rule"}) or None
        raise DocumentError("a file of rules holds [[rule]] tables", file=str(path), given=other, allowed="[[rule]]")
    return tuple(_Reading(path, text, at).rule(table) for at, table in enumerate(tables))


class _Reading:
    """Reads one [[rule]] and knows where it stands."""

    def __init__(self, path: Path, text: str, at: int) -> None:
        self._path, self._text, self._at = path, text, at

    def rule(self, table: Any) -> ScoreRule:
        if not isinstance(table, dict):
            raise self._fault((), "a rule is a table", table, list(_KEYS))
        for key in table:
            if key not in _KEYS:
                raise self._fault((key,), "a rule has no such key", key, list(_KEYS))
        name, kind = self._one_of(table, "class", CLASSES), self._one_of({"kind": "gpu", **table}, "kind", KINDS)
        gain = table.get("gain", "")
        if gain and gain not in FEATURES:
            raise self._fault(("gain",), "gain names a feature", gain, sorted(FEATURES))
        title = table.get("title")
        if not isinstance(title, str) or not title.strip():
            raise self._fault(("title",), "a rule needs a title", title, "a few words")
        advice = self._texts(table, "advice")
        conditions = tuple(self._condition(at, text) for at, text in enumerate(self._texts(table, "when")))
        fixtures = tuple(self._fixture(at, inner) for at, inner in enumerate(table.get("fixture") or ()))
        return ScoreRule(name, kind, title, conditions, advice, gain, fixtures, str(self._path), self._line(()))

    def _one_of(self, table: dict[str, Any], key: str, allowed: Sequence[str]) -> str:
        value = table.get(key)
        if value not in allowed:
            raise self._fault((key,), f"a rule's {key} is one of these", value, list(allowed))
        return str(value)

    def _texts(self, table: dict[str, Any], key: str) -> tuple[str, ...]:
        texts = table.get(key)
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise self._fault((key,), f"{key} is a list of texts", texts, '["..."]')
        return tuple(texts)

    def _condition(self, at: int, text: str) -> Condition:
        try:
            return Condition(text, FEATURES)
        except DocumentError as error:
            raise self._fault(("when", at), error.text, error.given, error.allowed) from error

    def _fixture(self, at: int, table: Any) -> Fixture:
        features = table.get("features") if isinstance(table, dict) else None
        if not isinstance(features, dict):
            raise self._fault(("fixture", at), "a fixture has features and a class", table, "features = {...}")
        for name, value in features.items():
            if name not in FEATURES:
                raise self._fault(("fixture", at), "there is no such feature", name, sorted(FEATURES))
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise self._fault(("fixture", at), f"{name} is a number", value, "a number")
        expected = table.get("class")
        if expected not in (*CLASSES, UNKNOWN):
            raise self._fault(("fixture", at), "a fixture's class is one of these", expected, [*CLASSES, UNKNOWN])
        return Fixture({name: float(value) for name, value in features.items()}, expected, self._line(("fixture", at)))

    def _line(self, keys: tuple[str | int, ...]) -> int | None:
        return find_line(self._text, ("rule", self._at, *keys))

    def _fault(self, keys: tuple[str | int, ...], text: str, given: Any, allowed: Any) -> DocumentError:
        hint = (
            did_you_mean(given, allowed, "correct it") if isinstance(given, str) and isinstance(allowed, list) else None
        )
        return DocumentError(text, file=str(self._path), line=self._line(keys), given=given, allowed=allowed, next=hint)


def examine_rules(rules: Sequence[ScoreRule]) -> list[Finding]:
    """Return each fixture that the rules together do not give its class, and each rule without one."""
    found = []
    for rule in rules:
        if not rule.fixtures:
            found.append(_complaint(rule, rule.line, "has no fixture", "add a [[rule.fixture]] that it takes"))
        elif not any(fixture.name == rule.name for fixture in rule.fixtures):
            found.append(_complaint(rule, rule.line, "has no fixture that it takes", "add one with its own class"))
        for fixture in rule.fixtures:
            name = class_of(rules, rule.kind, fixture.features)
            if name != fixture.name:
                text = f"gives its fixture {name} instead of {fixture.name}"
                found.append(_complaint(rule, fixture.line, text, "correct `when`, the order, or the fixture"))
    return found


def class_of(rules: Sequence[ScoreRule], kind: str, features: Mapping[str, float]) -> str:
    """Return the class of one window by its features."""
    arrays = {name: np.array([[value]], dtype=np.float64) for name, value in features.items()}
    of_kind = [rule for rule in rules if rule.kind == kind]
    chosen = int(choose(of_kind, arrays, (1, 1)).chosen[0, 0])
    return of_kind[chosen].name if chosen >= 0 else UNKNOWN


@dataclass(frozen=True)
class RuleChoice:
    """Indices of rules, int16 [window, device]: the one that was chosen, and the one that could not be decided; -1 none."""

    chosen: np.ndarray
    undecided: np.ndarray


def choose(
    rules: Sequence[ScoreRule], features: Mapping[str, np.ndarray], shape: tuple[int, int], *, guess: bool = False
) -> RuleChoice:
    """Return the first rule that holds in each window; none where one before it cannot be decided.

    With `guess` rules that cannot be decided are passed over.
    """
    chosen = np.full(shape, -1, dtype=np.int16)
    undecided = np.full(shape, -1, dtype=np.int16)
    is_open = np.ones(shape, dtype=bool)
    for at, rule in enumerate(rules):
        if not is_open.any():
            break
        truth = rule.when[0].evaluate(features, shape)
        for condition in rule.when[1:]:
            truth = truth & condition.evaluate(features, shape)
        chosen[is_open & truth.true] = at
        undecided[is_open & ~truth.true & ~truth.false] = at
        is_open &= ~truth.true if guess else truth.false
    return RuleChoice(chosen, undecided)


def _complaint(rule: ScoreRule, line: int | None, text: str, next_step: str) -> Finding:
    named = f"the rule for {rule.name} ({rule.kind}) {text}"
    return Finding(named, "error", "rule-on-trial", file=rule.file, line=line, given=rule.title, next=next_step)
