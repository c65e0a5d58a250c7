"""Folders are small, and files and classes have names of the field (decision 42).

What counts is a folder's own Python files without `__init__`; files of its sub-folders count there.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePath

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "cordee"
MOST_FILES = 20
FILES_OF_A_FOLDER = 3
# Words that say nothing to a stranger, each with what the field says.
PRIVATE_WORDS = {
    "against": "comparison, baseline",
    "asked": "request, question",
    "asking": "client, query",
    "beside": "sidecar",
    "ends": "outcomes",
    "hands": "check runner",
    "intake": "sink",
    "letting": "deferred close",
    "looping": "dataset, loop",
    "making": "build",
    "meeting": "shared folder, registry",
    "relayout": "rechunk",
    "remarks": "findings",
    "saying": "findings",
    "seats": "roster",
    "settling": "reconcile",
    "shelf": "library",
    "spec": "job",
    "telling": "progress, news",
    "told": "reported, recorded",
}
# A place is where a job runs. Whatever else lies somewhere says what lies there.
PRIVATE_NAMES = {"place": "layout, location, folder"}

# What somebody does is no name; these are nouns of the field, or calls that users know.
GERUNDS = frozenset(
    [
        "accounting",
        "binding",
        "decoding",
        "listing",
        "loading",
        "meaning",
        "packing",
        "pairing",
        "recording",
        "sampling",
        "scraping",
        "stopping",
        "tracing",
        "training",
    ]
)


def faults_of_folders(files: Iterable[PurePath]) -> list[str]:
    """Return a sentence for every folder with too many files, and for every group of files that is a folder."""
    folders: dict[PurePath, list[str]] = defaultdict(list)
    for file in files:
        if file.stem != "__init__":
            folders[file.parent].append(file.stem)
    faults = [
        f"{folder} has {len(names)} files, at most {MOST_FILES} are allowed: put those of one concept into a folder"
        for folder, names in folders.items()
        if len(names) > MOST_FILES
    ]
    for folder, names in folders.items():
        groups: dict[str, list[str]] = defaultdict(list)
        for name in names:
            groups[name.lstrip("_").partition("_")[0]].append(name)
        faults += [
            f"{folder} has {', '.join(sorted(group))}: make {folder / prefix}/ of them"
            for prefix, group in groups.items()
            if len(group) >= FILES_OF_A_FOLDER
        ]
    return faults


def private_words(name: str) -> list[str]:
    """Return what is wrong with the name of a file, folder or class."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]
    known = {**PRIVATE_WORDS, **(PRIVATE_NAMES if len(words) == 1 else {})}
    return [
        f"{word!r} is no word of the field; say what it is, such as {known[word]}" for word in words if word in known
    ]


def test_folders_have_at_most_20_files_and_three_files_with_one_prefix_are_a_folder():
    files = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py"))]
    assert len(files) > 1000
    assert faults_of_folders(files) == []


def test_files_folders_and_classes_have_names_of_the_field():
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        classes = [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
        for name in [*place.with_suffix("").parts, *classes]:
            found += [f"{place}: {name}: {fault}" for fault in private_words(name)]
    assert found == []


def test_no_file_is_named_by_what_somebody_does():
    files = [path for path in PACKAGE.rglob("*ing.py") if "testing" not in path.relative_to(PACKAGE).parts]
    named = {path.stem.lstrip("_").rpartition("_")[2]: path for path in files}
    assert {str(path.relative_to(PACKAGE)) for word, path in named.items() if word not in GERUNDS} == set()


def test_what_is_too_much_for_a_folder_is_said():
    many = [PurePath("room", f"{chr(97 + number)}.py") for number in range(20)]
    assert faults_of_folders([*many, PurePath("room/__init__.py"), PurePath("room/inner/z.py")]) == []
    assert "room has 21 files" in faults_of_folders([*many, PurePath("room/z.py")])[0]
    group = [PurePath("room", name) for name in ("shard.py", "shard_file.py", "_shard_split.py", "share.py")]
    assert faults_of_folders(group) == ["room has _shard_split, shard, shard_file: make room/shard/ of them"]
    assert faults_of_folders(group[1:]) == []


@pytest.mark.parametrize("name", ["letting_go", "PortsTold", "_Meeting", "Place", "place", "SpecCommand", "asked"])
def test_a_private_word_is_found_in_a_name(name):
    assert private_words(name)


@pytest.mark.parametrize("name", ["deferred_close", "StoragePlace", "Specs", "meetings", "NVML", "_base", "__init__"])
def test_a_word_of_the_field_is_no_fault(name):
    assert private_words(name) == []
