"""What reports for people are made of."""

from __future__ import annotations

import pytest

from cordee.core.words import alike, bar, counted, did_you_mean, nearest, signal_name, wrapped


@pytest.mark.parametrize(("number", "text"), [(0, "no nodes"), (1, "1 node"), (2, "2 nodes")])
def test_things_are_counted_in_words(number, text):
    assert counted(number, "node") == text


def test_the_name_that_was_probably_meant_is_the_one_most_like_it():
    assert nearest("imagnet", ["image", "imagenet"]) == "imagenet"
    assert nearest("imagnet", {"corpus": 1}) is None
    assert nearest("imagnet", ["imagenet"], cutoff=0.99) is None


def test_several_names_may_be_meant_the_one_most_like_it_first():
    assert alike("run-1", ["run-12", "corpus", "run-1x4"]) == ["run-12", "run-1x4"]
    assert alike("run-1", ["run-12", "run-1x4"], most=1) == ["run-12"]


def test_a_hint_names_it_or_says_what_else_to_do():
    assert did_you_mean("imagnet", ["imagenet"], "leave it out") == "did you mean imagenet?"
    assert did_you_mean("imagnet", ["corpus"], "leave it out") == "leave it out"


def test_lines_begin_with_their_indent_and_words_with_hyphens_stay_whole():
    assert wrapped("a b low-level d", "  ", "- ", columns=12) == ["- a b", "  low-level", "  d"]
    assert wrapped("") == []


@pytest.mark.parametrize(("share", "drawn"), [(0, "····"), (0.5, "██··"), (1, "████"), (1.7, "████")])
def test_a_bar_is_as_long_as_its_share_and_never_longer_than_its_width(share, drawn):
    assert bar(share, 4) == drawn


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (15, "SIGTERM"), (4711, "signal 4711")])
def test_a_signal_is_called_by_its_name_where_it_has_one(number, name):
    assert signal_name(number) == name
