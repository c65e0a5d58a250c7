"""A pack is tried before it is trusted: mounted in its place, its largest packages imported."""

from __future__ import annotations

import json
import subprocess
import sys

from cordee.systems.environments.venv_image.interpreter import interpreter_of
from cordee.systems.environments.venv_image.packing import pack, verified
from cordee.systems.environments.venv_image.verify import largest_packages

COMMAND = [sys.executable, "-m", "cordee.faces.cli", "env", "pack", "--json"]


def test_the_packages_with_most_modules_are_tried(venv):
    for name, modules in {"big": 9, "small": 2, "none": 0}.items():
        paths = [f"{name}/__init__.py", *(f"{name}/m{number}.py" for number in range(modules))]
        venv.add(f"site/{name}-1.dist-info/RECORD", "".join(f"{path},,\n" for path in paths))
        for path in paths:
            venv.add(f"site/{path}")
    venv.add("site/gone-1.dist-info/RECORD", '"gone/__init__.py",,\n"a,b/c.py",,\n')
    assert largest_packages(interpreter_of(venv.folder), most=2) == ["big", "small"]


def test_what_is_mounted_is_imported_by_its_own_interpreter(venv, tmp_path):
    venv.add("site/thing/__init__.py", "import sys\nassert not sys.flags.isolated\n")
    said = verified(pack(venv.folder, tmp_path / "train.sqsh")).verified
    assert said is not None
    assert (said.tried, said.text, said.imports) == (True, None, {"thing": None})


def test_a_package_that_works_in_the_folder_only_is_an_error(venv, tmp_path):
    venv.add("site/thing/__init__.py", "open(__file__ + '.lock', 'w')\n")
    venv.add("site/bad/__init__.py", "raise SystemExit('nowhere')\n")
    venv.add("site/bad-1.dist-info/RECORD", "bad/__init__.py,,\n")
    done = subprocess.run(
        [*COMMAND, venv.folder, "-o", tmp_path / "x.sqsh"], capture_output=True, text=True, check=False
    )
    said = json.loads(done.stdout)["verified"]
    assert done.returncode == 1
    assert said["imports"].keys() == {"thing"}
    assert "Read-only file system" in said["imports"]["thing"]


def test_a_pack_for_a_path_that_is_not_here_says_why_it_is_not_tried(venv, tmp_path):
    done = subprocess.run(
        [*COMMAND, venv.folder, "-o", tmp_path / "x.sqsh", "--at", "/opt/nowhere"],
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(done.stdout)["verified"]
    assert said["tried"] is False
    assert "/opt/nowhere is no folder of this machine" in said["text"]
