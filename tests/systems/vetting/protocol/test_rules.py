"""Rules from the cache are the rules of the files."""

from __future__ import annotations

import pytest

from cordee.systems.vetting.protocol.rules import rules_of
from cordee.systems.vetting.rules import load_rules

RULE = """\
version: 1
rules:
- id: site.rule
  text: It is so.
  when: {check: host.memory, status: fail}
  scope: node
  action: none
  kind: soft
  recovery: [Look at it.]
  source: our handbook
  example: {check: host.memory, status: fail, evidence: little}
  counterexample: {check: host.memory, status: warn, evidence: little}
"""


@pytest.fixture
def environ(tmp_path):
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def kept(tmp_path):
    return list((tmp_path / "cache" / "cordee" / "rules").glob("*.json"))


def test_what_is_kept_is_what_was_read(environ, tmp_path):
    assert rules_of([], environ) == load_rules() == rules_of([], environ)
    assert len(kept(tmp_path)) == 1


def test_a_changed_file_is_read_anew(environ, tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(RULE)
    assert rules_of([own], environ)[0]["text"] == "It is so."
    own.write_text(RULE.replace("It is so", "It is otherwise"))
    assert rules_of([own], environ)[0]["text"] == "It is otherwise."


def test_a_torn_or_missing_cache_does_no_harm(environ, tmp_path):
    rules_of([], environ)
    kept(tmp_path)[0].write_text("[{")
    assert rules_of([], environ) == load_rules()
    (tmp_path / "file").write_text("")
    assert rules_of([], {"XDG_CACHE_HOME": str(tmp_path / "file")}) == load_rules()


def test_the_oldest_are_forgotten(environ, tmp_path):
    own = tmp_path / "own.yaml"
    for index in range(10):
        own.write_text(RULE.replace("It is so", f"It is {index}"))
        rules_of([own], environ)
    assert len(kept(tmp_path)) == 8
