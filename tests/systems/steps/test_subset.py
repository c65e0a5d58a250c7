"""Parts of data sets for a test."""

from __future__ import annotations

import pytest

from cordee.systems.steps.subset import copy_first_lines, link_part


def test_of_a_folder_some_files_of_each_folder_are_linked_and_labels_stay(tmp_path):
    source, target = tmp_path / "set", tmp_path / "part"
    for name in ("cats", "dogs"):
        (source / name).mkdir(parents=True)
        for at in range(200):
            (source / name / f"{at:03}.jpg").write_text(f"{name} {at}")
    (source / "labels.csv").write_text("cats,dogs")
    assert link_part(source, target, 0.01) == 2 + 2 + 1
    assert (target / "labels.csv").read_text() == "cats,dogs"
    linked = sorted((target / "dogs").iterdir())
    assert [path.read_text() for path in linked] == ["dogs 0", "dogs 100"]


def test_of_a_text_the_first_lines_are_copied_whole(tmp_path):
    source, target = tmp_path / "set.csv", tmp_path / "part.csv"
    source.write_text("name,value\n" + "".join(f"row{at},{at}\n" for at in range(1000)))
    copy_first_lines(source, target, 0.1)
    lines = target.read_text().splitlines()
    assert lines[0] == "name,value"
    assert lines == source.read_text().splitlines()[: len(lines)]
    assert 0.09 < target.stat().st_size / source.stat().st_size < 0.12


@pytest.mark.usefixtures("real")
def test_a_text_of_one_line_without_an_end_is_copied(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    assert copy_first_lines(tmp_path / "a.txt", tmp_path / "b.txt", 0.01) == 3
    (tmp_path / "empty.txt").write_text("")
    assert copy_first_lines(tmp_path / "empty.txt", tmp_path / "c.txt", 0.01) == 0
