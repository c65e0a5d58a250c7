"""A Python that every user may run, though the one that runs the tests may lie in a closed home."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cordee.testing.containers import AS_USER
from support import open_python as module
from support.open_python import open_python


def test_another_user_runs_a_copy_of_a_closed_python_with_the_modules_that_cordee_needs(monkeypatch):
    monkeypatch.setattr(module, "_is_open", lambda path: False)
    ask = "import os, sys, ctypes, ssl, pydantic, cordee.cli; print(os.getuid(), *{m.__file__ for m in (os, pydantic, cordee)})"
    with open_python() as (executable, source):
        # setpriv itself may still go where root may: what it starts may not.
        words = [*AS_USER, "env", "-i", executable, "-c", ask]
        uid, *files = subprocess.run(words, capture_output=True, text=True, check=True, cwd="/").stdout.split()
        home = Path(executable).parents[1]
        assert uid == "1000"
        assert all(Path(file).is_relative_to(home) for file in files)
        assert Path(source).is_relative_to(home)
    assert not home.exists()


def test_a_path_is_open_only_when_every_folder_to_it_is(tmp_path_factory):
    folder = tmp_path_factory.mktemp("closed")
    folder.chmod(0o700)
    (folder / "file").touch()
    assert not module._is_open(folder / "file")
    assert module._is_open(Path("/usr/bin"))
