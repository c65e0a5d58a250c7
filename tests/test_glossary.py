"""Concepts are explained by hand, keys of documents and public classes by the code itself (decision 43)."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
TERMS = re.findall(r"^(\S.*)\n: ", GLOSSARY.read_text(), re.MULTILINE)
LONGEST = 220


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    """What renders the pages of keys and classes."""
    spec = importlib.util.spec_from_file_location("code_reference", ROOT / "docs" / "code_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_term_of_the_glossary_stands_there_once_and_is_used_elsewhere() -> None:
    assert len(TERMS) > 60
    assert sorted(set(TERMS)) == sorted(TERMS)
    pages = [page for page in (ROOT / "docs").glob("*.md") if page != GLOSSARY]
    text = " ".join(page.read_text() for page in [*pages, *(ROOT / "src").rglob("*.py")]).lower()
    words = " ".join(text.split())
    unused = [term for term in TERMS if term.lower() not in words]
    assert unused == [], "a term that nothing uses explains nothing: take it out, or use it"


def test_every_key_of_a_document_says_what_it_means(reference: ModuleType) -> None:
    tables = [(path, table) for model in reference.DOCUMENTS.values() for path, table in reference.tables_of(model)]
    assert {"need", "metrics.scrape", "partitions.NAME.groups", "vetting.actions"} <= {path for path, _ in tables}
    keys = {f"{path}.{key.name}": key.meaning for path, table in tables for key in reference.keys_of(table)}
    assert len(keys) > 150
    wrong = [key for key, meaning in keys.items() if not meaning.endswith(".") or len(meaning) > LONGEST]
    assert wrong == [], 'write one sentence below the key, """Like this."""'


def test_every_public_class_says_what_it_is(reference: ModuleType) -> None:
    classes = reference.public_classes()
    assert len(classes) > 1000
    wrong = [f"{one.file}: {one.name}" for one in classes if not one.says or len(one.says) > LONGEST]
    assert wrong == [], "begin its docstring with one short sentence that says what it is"


def test_the_page_of_keys_shows_what_each_takes_and_its_default(reference: ModuleType) -> None:
    page = reference.document_keys()
    assert "| `nodes` | Nodes that ranks start on. | whole number from 1 | `1` |" in page
    assert "| `kind` | Whether all nodes share it" in page
    assert '| "memory", "node", "shared" | `shared` |' in page
    assert "### `[test.need]`\n\nThe keys of `[need]`." in page


def test_the_page_of_classes_lists_them_by_room(reference: ModuleType) -> None:
    _, _, rest = reference.classes().partition("## systems/score\n")
    assert "| `ScoreTrace` |" in rest.partition("\n## ")[0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("What it is.", "What it is."),
        ("What it is,\nover two lines. More.", "What it is, over two lines."),
        ("What it is: `a.b` of it\n\nMore.", "What it is: `a.b` of it"),
    ],
)
def test_the_first_sentence_of_a_docstring_may_go_over_two_lines(
    reference: ModuleType, text: str, sentence: str
) -> None:
    assert reference.first_sentence(text) == sentence
