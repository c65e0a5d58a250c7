"""Shell syntax is recognised where a shell would see it, and nowhere else."""

from __future__ import annotations

import pytest

from cordee.job.plan.shell_words import shell_words


@pytest.mark.parametrize(
    ("run", "word"),
    [
        ("a | b", "|"),
        ("a && b", "&&"),
        ("a || b", "||"),
        ("a; b", ";"),
        ("a &", "&"),
        ("a > log", ">"),
        ("a 2>&1", "2>&1"),
        ("a < in", "<"),
        ("a $HOME", "$HOME"),
        ("a ${HOME}", "${HOME"),
        ('a "$HOME"', "$HOME"),
        ("a $(date)", "$("),
        ("a `date`", "`"),
        ("a data/*.txt", "data/*.txt"),
        ("a file?.txt", "file?.txt"),
        ("a ~/data", "~"),
        ("X=1 a", "X=1"),
    ],
)
def test_shell_syntax_is_found(run: str, word: str) -> None:
    assert shell_words(run)[0][0] == word


@pytest.mark.parametrize(
    "run",
    [
        "python train.py --lr 0.1 --name=x",
        "a '*.txt' \"b|c\" '$HOME' \\$HOME",
        "a --filter 'x > 3 && y' --json '{\"a\": [1]}'",
        "bash -c 'a | b > $HOME'",
        "/bin/sh run.sh *.txt",
        "a --url=http://host:1/x --mail x@y --pct 5%",
        "a --resume {checkpoint}",
        "a b~c",
        ["a", "|", "b"],
        "",
    ],
)
def test_what_is_quoted_or_plain_is_no_syntax(run: object) -> None:
    assert shell_words(run) == []
