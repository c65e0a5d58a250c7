"""What was printed last, as a person saw it."""

from __future__ import annotations

import pytest

from cordee.runs.log_tails import last_lines, plain


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("\x1b[31mValueError\x1b[0m: bad", "ValueError: bad"),
        ("step 1\rstep 2\rstep 3\r\n", "step 3"),
        ("\x1b]0;title\x07text\x00", "text"),
        ("x" * 600, "x" * 500),
    ],
)
def test_a_line_is_shown_without_what_a_terminal_acts_on(written, seen):
    assert plain(written) == seen


def test_the_end_of_a_long_file_is_read(tmp_path):
    path = tmp_path / "out"
    path.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert last_lines(path, 2) == ("line 99998", "line 99999")
    assert last_lines(tmp_path / "missing") == ()
