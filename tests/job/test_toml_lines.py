"""The locator of TOML keys: every key that tomllib reads has a line, and it is the right one."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordee.core.documents.toml_lines import error_line, find_line, locate

DOCUMENT = '''\
# a comment with = and [brackets]
name = "x # not a comment"
a.b.c = 1
text = """
fake = 1
[fake]
"""
raw = \'\'\'
also = "fake"\'\'\'
list = [
  1, # one
  "]", [2,
  3],
]
[need]
nodes = 2
inline = { first = 1, "second key" = { deep = [ { x = 1 }, { x = 2 } ] } }
[on.local.need]
nodes = 3
[[row]]
v = 1
[[row]]
v = 2
[row.sub]
w = 1
'quoted.key' = true
'''


def test_lines_of_all_kinds_of_keys_are_found() -> None:
    expected = {
        ("name",): 2,
        ("a", "b", "c"): 3,
        ("text",): 4,
        ("raw",): 8,
        ("list",): 10,
        ("list", 0): 11,
        ("list", 2): 12,
        ("list", 2, 1): 13,
        ("need",): 15,
        ("need", "nodes"): 16,
        ("need", "inline", "second key", "deep", 1, "x"): 17,
        ("on", "local", "need", "nodes"): 19,
        ("on", "local"): 18,
        ("row",): 20,
        ("row", 0, "v"): 21,
        ("row", 1, "v"): 23,
        ("row", 1, "sub", "w"): 25,
        ("row", 1, "sub", "quoted.key"): 26,
    }
    assert {path: find_line(DOCUMENT, path) for path in expected} == expected


def test_text_inside_strings_and_comments_is_no_key() -> None:
    assert not {("fake",), ("also",)} & locate(DOCUMENT).keys()


def test_a_missing_key_is_where_its_nearest_parent_is() -> None:
    assert find_line(DOCUMENT, ("need", "tim")) == 15
    assert find_line(DOCUMENT, ("nothing",)) is None


def test_what_comes_before_a_fault_is_found_in_broken_text() -> None:
    assert locate("a = 1\nb == 2\nc = 3\n")["a",] == 1
    assert locate("a = [1, 2\n") is not None


def test_the_line_of_a_syntax_error_is_taken_from_the_message() -> None:
    for text, line in (("a = 1\nb = \n", 2), ("a = 1\n[x", 2), ("a = '''\nb\nc\n", 3)):
        with pytest.raises(tomllib.TOMLDecodeError) as caught:
            tomllib.loads(text)
        assert error_line(str(caught.value), text) == line


_keys = st.text(alphabet="ab-_.\"'#=[]{} ,ü\\", min_size=1, max_size=4)
_scalars = st.one_of(
    st.integers(-9, 9),
    st.booleans(),
    st.text(alphabet="ab#=[]{},'\"\\\n ", max_size=8),
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_keys, inner, max_size=3)),
    max_leaves=8,
)


class _Writer:
    """Writes a document in one of the many ways of TOML and notes where it put each key."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.text = draw, ""
        self.lines: dict[tuple[str | int, ...], int] = {}

    def put(self, text: str) -> None:
        self.text += text

    def here(self, path: tuple[str | int, ...]) -> None:
        self.lines.setdefault(path, self.text.count("\n") + 1)

    def noise(self) -> None:
        self.put(self.draw(st.sampled_from(["", "\n", "# a = 1\n", "  "])))

    def key(self, key: str) -> None:
        bare = all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in key)
        self.put(key if bare and self.draw(st.booleans()) else _basic(key))

    def value(self, path: tuple[str | int, ...], value: object) -> None:
        if isinstance(value, dict):
            self.put("{")
            for index, (key, inner) in enumerate(value.items()):
                self.put(", " if index else " ")
                self.here((*path, key))
                self.key(key)
                self.put(" = ")
                self.value((*path, key), inner)
            self.put(" }")
        elif isinstance(value, list):
            self.put("[")
            for index, inner in enumerate(value):
                self.noise()
                self.here((*path, index))
                self.value((*path, index), inner)
                self.noise()
                self.put(",")
            self.noise()
            self.put("]")
        elif isinstance(value, str):
            plain = "'" not in value and "\\" not in value and "\r" not in value
            if plain and self.draw(st.booleans()):
                self.put(f"'''\n{value}'''")
            elif self.draw(st.booleans()):
                self.put('"""\n' + value.replace("\\", "\\\\").replace('"', '\\"') + '"""')
            else:
                self.put(_basic(value))
        else:
            self.put(str(value).lower())

    def document(self, values: dict[str, object]) -> None:
        tables = []
        for key, value in values.items():
            if isinstance(value, dict) and self.draw(st.booleans()):
                tables.append(key)
                continue
            self.noise()
            self.here((key,))
            self.key(key)
            self.put("=")
            self.value((key,), value)
            self.put("\n")
        for key in tables:
            self.noise()
            self.here((key,))
            self.put("[")
            self.key(key)
            self.put("] # table\n")
            for inner, value in dict(values[key]).items():  # type: ignore[call-overload]
                self.here((key, inner))
                self.key(inner)
                self.put(" = ")
                self.value((key, inner), value)
                self.put("\n")


def _basic(text: str) -> str:
    for letter, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        text = text.replace(letter, escape)
    return f'"{text}"'


@settings(max_examples=60)
@given(st.data(), st.dictionaries(_keys, _values, max_size=4))
def test_every_key_of_a_random_document_is_found_on_its_line(data: st.DataObject, values: dict[str, object]) -> None:
    writer = _Writer(data.draw)
    writer.document(values)
    assert tomllib.loads(writer.text) == values
    assert locate(writer.text) == writer.lines


@settings(max_examples=100)
@given(st.text(alphabet="ab=[]{}\"'#\n,. \\", max_size=40))
def test_no_text_makes_the_locator_fail(text: str) -> None:
    for line in locate(text).values():
        assert 1 <= line <= text.count("\n") + 1
