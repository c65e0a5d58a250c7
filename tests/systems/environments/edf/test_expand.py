"""Variables: every form, nothing but the forms, and words for what cannot be filled in."""

from __future__ import annotations

import subprocess

import pytest

from cordee.systems.environments.edf.expand import ExpansionError, bare_names, expand

VARIABLES = {"HOME": "/users/me", "EMPTY": "", "A_1": "one"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        ("plain", "plain"),
        ("${HOME}", "/users/me"),
        ("${HOME}:${HOME}/x", "/users/me:/users/me/x"),
        ("${A_1}${EMPTY}.", "one."),
        ("${NONE:-}", ""),
        ("${NONE:-default}", "default"),
        ("${NONE:-a:b c/d}", "a:b c/d"),
        ("${EMPTY:-default}", "default"),
        ("${HOME:-default}", "/users/me"),
        ("${NONE:-${HOME}/x}", "/users/me/x"),
        ("${NONE:-${NEITHER:-last}}", "last"),
        ("${HOME:-${NEITHER}}", "/users/me"),
        ("${NONE:-$${HOME}}", "${HOME}"),
        ("$${HOME}", "${HOME}"),
        ("$$", "$"),
        ("$$${HOME}", "$/users/me"),
        ("$$$$", "$$"),
        ("costs 5$", "costs 5$"),
        ("$HOME and $1", "$HOME and $1"),
        ("a}b{c", "a}b{c"),
        ("${HOME}}", "/users/me}"),
        ("$(HOME) `HOME`", "$(HOME) `HOME`"),
    ],
)
def test_a_text_is_expanded(text, value):
    assert expand(text, VARIABLES) == value


def test_what_a_variable_holds_is_not_expanded_again():
    assert expand("${A}${B}", {"A": "${B}", "B": "$$"}) == "${B}$$"


def test_an_undefined_variable_is_named_with_the_way_to_allow_it():
    with pytest.raises(ExpansionError, match="uses the variable SCRATCH, which is not defined") as caught:
        expand("${SCRATCH}/x", VARIABLES)
    assert "${SCRATCH:-}" in caught.value.next
    with pytest.raises(ExpansionError) as caught:
        expand("${HOMES}", VARIABLES)
    assert caught.value.next == "did you mean HOME?"


def test_a_default_that_is_used_may_not_hold_an_undefined_variable():
    with pytest.raises(ExpansionError, match="NEITHER"):
        expand("${NONE:-${NEITHER}}", VARIABLES)


@pytest.mark.parametrize(
    "text",
    ["${", "${}", "${HOME", "${HOME:-x", "${1}", "${HOME:1}", "${HOME@Q}", "${A B}", "${NONE:-${HOME}"],
)
def test_any_other_form_is_refused_with_the_forms(text):
    with pytest.raises(ExpansionError) as caught:
        expand(text, VARIABLES)
    assert caught.value.rule == "bad-reference"
    assert "${NAME:-default}" in str(caught.value.allowed)


def test_a_million_nested_defaults_are_refused_not_a_crash():
    with pytest.raises(ExpansionError):
        expand("${A:-" * 300_000, {})


def test_names_without_braces_are_found():
    assert bare_names("$HOME/$$USER/$$$X ${Y} $1") == ["HOME", "X"]


SHELL = {"HOME": "/home/me/", "EMPTY": "", "ARCHIVE": "corpus.tar.gz"}


@pytest.mark.parametrize(
    "text",
    [
        *(
            "${HOME%/}",
            "${HOME%me/}",
            "${HOME%nothing}",
            "${ARCHIVE%.*}",
            "${ARCHIVE%%.*}",
            "${ARCHIVE#*.}",
            "${ARCHIVE##*.}",
        ),
        *("${NONE:=x}", "${NONE=x}", "${EMPTY=x}", "${EMPTY:=x}", "${NONE-x}", "${EMPTY-x}", "${EMPTY:-x}"),
        *("${NONE:+x}", "${HOME:+x}", "${EMPTY+x}", "${EMPTY:+x}", "${HOME:?none}", "${NONE:-${HOME%/}}/data"),
    ],
)
def test_forms_of_the_shell_come_to_what_a_shell_makes_of_them(text):
    said = subprocess.run(["sh", "-c", f'echo "{text}"'], env=SHELL, capture_output=True, text=True, check=True).stdout
    assert expand(text, SHELL) == said.rstrip("\n")


@pytest.mark.parametrize(
    ("text", "words"), [("${NONE:?give it}", "give it"), ("${EMPTY:?}", "EMPTY"), ("${NONE%/}", "NONE")]
)
def test_a_variable_that_a_form_needs_is_named_where_it_is_not_defined(text, words):
    with pytest.raises(ExpansionError, match=words) as caught:
        expand(text, SHELL)
    assert caught.value.rule == "undefined-variable"
