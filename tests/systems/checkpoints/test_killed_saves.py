"""Simulated kills at any call to the file system: what was promised is there, and bit for bit; `benchmarks/checkpoint_kills.py --simulated` does thousands."""

from __future__ import annotations

import pytest

from cordee.systems.checkpoints.node.tiers.kept import KeptSaves
from cordee.systems.checkpoints.node.tiers.object_saves import ObjectSaves
from support.runs.killed_saves import KINDS, campaign

pytestmark = pytest.mark.usefixtures("real")


def test_nothing_is_lost_or_damaged_whatever_is_killed_and_whenever(tmp_path):
    kinds, wrong, _ = campaign(tmp_path, kills=60, seed=1, most_s=600)
    assert wrong == {}
    assert set(kinds) == set(KINDS)


def test_a_node_that_forgets_the_save_before_too_early_is_found_out(tmp_path, monkeypatch):
    forget = KeptSaves.forget
    monkeypatch.setattr(KeptSaves, "forget", lambda self, rank, but: forget(self, rank, list(but)[:1]))
    _, wrong, _ = campaign(tmp_path, kills=15, seed=1, most_s=600)
    assert any("was promised" in text for texts in wrong.values() for text in texts)


def test_a_store_in_which_a_manifest_comes_before_the_files_is_found_out(tmp_path, monkeypatch):
    put = ObjectSaves.put

    def hasty(self, save, files, paced):
        self._store.write(f"{save}/cordee.json", [b'{"schema": "cordee.checkpoint/1", "files": {}, "crc32": {"x": 1}}'])
        put(self, save, files, paced)

    monkeypatch.setattr(ObjectSaves, "put", hasty)
    _, wrong, _ = campaign(tmp_path, kills=8, seed=1, most_s=600)
    assert wrong
