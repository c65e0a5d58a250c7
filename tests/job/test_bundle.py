"""The zip of the node side: made once for a version, and forgotten when nobody has used it for long."""

from __future__ import annotations

import os
import time
import zipfile

from cordee.job.submit.bundle import write_node_zip

_DAY_S = 86_400.0


def test_copies_of_versions_that_nobody_uses_go_and_a_copy_in_use_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "cordee"
    kept.mkdir()
    for name, days in (("node-old.zip", 31), ("node-new.zip", 29), ("other.zip", 100)):
        (kept / name).touch()
        os.utime(kept / name, (0, time.time() - days * _DAY_S))
    write_node_zip(tmp_path / "node.zip")
    (made,) = (path for path in kept.iterdir() if path.stat().st_size)
    assert {path.name for path in kept.iterdir()} == {"node-new.zip", "other.zip", made.name}
    os.utime(made, (0, time.time() - 31 * _DAY_S))
    write_node_zip(tmp_path / "again.zip")
    assert time.time() - made.stat().st_mtime < _DAY_S
    assert "cordee/__init__.py" in zipfile.ZipFile(tmp_path / "again.zip").namelist()
