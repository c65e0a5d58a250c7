"""Images that grow over a squashfs file of their lower layers; `test_layers.py` holds each of its images against one grown so."""

from __future__ import annotations

import os
import random

import pytest

from cordee.machine.images.oci import open_image
from cordee.systems.environments.images.grown import Stem, grow
from cordee.testing.oci import LayerEntry, folder, hard_link, link

from .conftest import held


def test_folders_of_thousands_of_names_and_files_of_all_lengths_are_the_same_grown_and_merged(merged):
    lengths = random.Random(7)
    names = [f"{number:04}-{'n' * 60}" for number in range(3000)]
    lower = [folder("many"), *(LayerEntry(f"many/{name}", name.encode()[: lengths.randrange(60)]) for name in names)]
    lower += [LayerEntry("blocks", os.urandom(131_072)), LayerEntry("more", os.urandom(300_000) + bytes(500_000))]
    lower += [hard_link("twin", "more"), link("away", "/many/x"), folder("none")]
    upper = [LayerEntry(f"many/{name}", b"over") for name in names[::7]]
    upper += [LayerEntry(f"new/{name}", os.urandom(lengths.randrange(400_000))) for name in names[:9]]
    upper += [hard_link("third", "more"), hard_link("new/again", "blocks"), LayerEntry("zeros", bytes(131_072))]
    whole = merged.whole(lower, [*upper, LayerEntry("many/.wh.0001-" + "n" * 60), LayerEntry(".wh.none")])
    assert len(whole) == 2 + 2999 + 7 + 9


def test_a_stem_is_kept_and_a_damaged_one_is_made_again(tmp_path, layout):
    layout.add([[LayerEntry("a", b"below")], [LayerEntry("b", b"over")]])
    stem, said = Stem(1, tmp_path / "stems"), list[list[str]]()
    for name in ("made", "kept", "damaged", "made again"):
        (tmp_path / name).mkdir()
        said.append([])
        grow(open_image(layout.folder), stem, tmp_path / name / "it", said[-1].append)
        assert held(tmp_path / name / "it") == {"a": ("-rw-r--r--", b"below"), "b": ("-rw-r--r--", b"over")}
        for file in stem.folder.glob("*/root.squashfs") if name == "kept" else ():
            os.truncate(file, 200)
    assert [bool(lines) for lines in said] == [True, False, True, True]
    assert "packed again" in said[2][0]
    assert said[3] == said[0]


@pytest.mark.parametrize("below", [1, 2])
def test_a_name_that_is_no_utf_8_stays(merged, below):
    name = os.fsdecode(b"caf\xe9")
    assert merged([LayerEntry(name, b"1")], [LayerEntry("b", b"2")], [LayerEntry("c", b"3")])[name] == b"1"
