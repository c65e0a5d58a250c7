"""YAML as documents need it: plain values, the line of every key, and nothing that can hurt."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordee.core.documents.yaml_lines import MOST_LEVELS, read_yaml
from cordee.core.errors import DocumentError


@pytest.fixture
def read(tmp_path):
    def call(text):
        path = tmp_path / "some.yaml"
        path.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return read_yaml(path)

    return call


@pytest.fixture
def fault(read):
    def call(text):
        with pytest.raises(DocumentError) as caught:
            read(text)
        assert caught.value.next
        return caught.value

    return call


def test_every_key_and_element_has_its_line(read):
    document = read(
        """\
        # a comment
        name: x
        list:
        - a: 1
          b: [1,
              2]
        - {c: 3}
        """
    )
    assert document.values == {"name": "x", "list": [{"a": 1, "b": [1, 2]}, {"c": 3}]}
    assert document.line(("name",)) == 2
    assert document.line(("list", 0)) == 4
    assert document.line(("list", 0, "b")) == 5
    assert document.line(("list", 0, "b", 1)) == 6
    assert document.line(("list", 1, "c")) == 7
    assert document.line(("list", 1, "nowhere", 3)) == 7
    assert document.line(("nowhere",)) == 2


def test_keys_are_texts_and_values_can_be_had_as_they_were_written(read):
    document = read("ON: 1.10\nmap: {A: yes, B: 0777, C: null, D: text}\n2: [no, x]\n")
    assert list(document.values) == ["ON", "map", "2"]
    assert document.as_texts(("ON",), document.values["ON"]) == "1.10"
    expected = {"A": "yes", "B": "0777", "C": None, "D": "text"}
    assert document.as_texts(("map",), document.values["map"]) == expected
    assert document.as_texts(("2",), document.values["2"]) == ["no", "x"]


def test_a_date_is_a_text(read):
    assert read("a: 2026-11-21").values == {"a": "2026-11-21"}


def test_aliases_and_merges_are_followed(read):
    document = read(
        """\
        base: &base {deadline: 5s, required: false}
        evals:
        - <<: *base
          required: true
        - required: 1
          <<: [*base, {other: 2}]
        again: *base
        """
    )
    assert document.values["evals"] == [
        {"deadline": "5s", "required": True},
        {"required": 1, "deadline": "5s", "other": 2},
    ]
    assert document.values["again"] == {"deadline": "5s", "required": False}
    assert document.line(("again", "deadline")) == 7


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "given twice; the first is in line 1"),
        ("a: 1\n---\nb: 2\n", 2, "more than one document"),
        ("a:\n  b: !!python/object/apply:os.system [id]\n", 2, "tag"),
        ("a: !mine 3\n", 1, "tag"),
        ("a: !!int x\n", 1, "not a valid int"),
        ("a: 1\nb: *nowhere\n", 2, "stands for nothing"),
        ("a: &a [*a]\n", 1, "stands for nothing"),
        ("? [a, b]\n: 1\n", 1, "key is not a text"),
        ("a: 1\n<<: 2\n", 2, "<< takes a table"),
        ("a: b: c\n", 1, "not valid YAML"),
        ("a: 1\n\tb: 2\n", 2, "not valid YAML"),
        ("a: [1,\n", 2, "not valid YAML"),
        ("a: \x07\n", 1, "not valid YAML"),
        (b"a: 1\nb: \xff\n", 2, "not UTF-8"),
        ("a: " + "[" * (MOST_LEVELS + 1), 1, "nested too deeply"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(fault, text, line, words):
    error = fault(text)
    assert words in error.text
    assert error.line == line


def test_a_bomb_of_aliases_is_refused_before_it_unfolds(fault):
    levels = [f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 10)}]" for level in range(1, 12)]
    error = fault("x0: &x0 [lol, lol]\n" + "\n".join(levels))
    assert "unfold" in error.text
    assert error.line is not None


@pytest.mark.parametrize("text", ["[" * 900_000, "{a: " * 200_000, "- " * 400_000, "? " * 400_000, "a: " * 300_000])
def test_deep_nesting_is_refused_without_recursion(fault, text):
    assert fault(text).line is not None


def test_a_file_of_more_than_a_mebibyte_is_refused(fault):
    assert "too large" in fault("a: " + "x" * (1 << 20)).text


def test_a_folder_and_a_missing_file_are_no_documents(tmp_path):
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(DocumentError) as caught:
            read_yaml(path)
        assert caught.value.file == str(path)


@settings(max_examples=400)
@given(st.text(st.sampled_from("ab:-[]{}&*<!?|>'\"#%@ \n\t,0.1~=\0\ufeff\u2028é"), max_size=40))
def test_any_text_is_read_or_refused_with_a_line(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(text)
    try:
        line = read_yaml(path).line(()) or 1
    except DocumentError as error:
        line = error.line
    assert isinstance(line, int)
