"""Modules of ours that are started as processes take nothing from the current folder."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys

import pytest

from cordee.machine.processes import tree
from cordee.machine.processes.module_command import OUTLIVED, module_argv
from cordee.testing.daemons import wait_until

from .test_layers import MODULES, interpreters

SHOWN = "import json, secrets, sys\nprint(json.dumps([__name__, sys.argv[1:], sys.path, sys.flags.no_user_site]))\n"
# They read and write the command lines of other people's jobs, and start nothing.
WRITES_COMMANDS = {"backends.job_scripts.body", "backends.job_scripts.launch"}


@pytest.mark.parametrize("python", interpreters())
@pytest.mark.parametrize("user_site", [True, False])
def test_a_module_is_run_with_its_arguments_and_nothing_of_the_current_folder(tmp_path, python, user_site):
    package, here = tmp_path / "library" / "ours", tmp_path / "here"
    package.mkdir(parents=True)
    here.mkdir()
    (package / "__init__.py").touch()
    (package / "shown.py").write_text(SHOWN)
    for name in ("secrets", "runpy", "json", "ours"):
        (here / f"{name}.py").write_text("raise SystemExit('this was not to be run')\n")
    command = module_argv("ours.shown", "--word", "a b", python=python, user_site=user_site)
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "library")}
    done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    name, words, path, no_user_site = json.loads(done.stdout)
    assert (name, words) == ("__main__", ["--word", "a b"])
    assert "" not in path
    assert str(here) not in path
    assert no_user_site == (not user_site)


def unsafe_starts(source: str) -> list[int]:
    """Return the lines where a list of words has `-m`, which takes the current folder first, without `-I` or `-P` before it."""
    found = []
    for node in ast.walk(ast.parse(source)) if '"-m"' in source else ():
        if isinstance(node, (ast.List, ast.Tuple)):
            words = [word.value if isinstance(word, ast.Constant) else None for word in node.elts]
            if "-m" in words and not {"-I", "-P"}.intersection(words[: words.index("-m")]):
                found.append(node.lineno)
    return found


def test_no_process_of_ours_is_started_by_dash_m():
    starts = {name: unsafe_starts(path.read_text()) for name, path in MODULES.items() if name not in WRITES_COMMANDS}
    assert {name: lines for name, lines in starts.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('argv = [sys.executable, "-m", "cordee.systems.vetting.node.checks"]', [1]),
        ('argv = (sys.executable, "-s", "-m", "cordee.systems.vetting.node.checks")', [1]),
        ('argv = [python, "-I", "-m", "venv", place]', []),
        ('argv = module_argv("cordee.systems.vetting.node.checks")', []),
    ],
)
def test_a_start_by_dash_m_is_found(source, lines):
    assert unsafe_starts(source) == lines


def test_a_launcher_has_a_session_of_its_own_and_goes_on_once_the_batch_script_that_it_stood_still_under_is_gone(
    tmp_path,
):
    said = tmp_path / "said"
    here = [
        sys.executable,
        "-c",
        "import os, sys; open(sys.argv[1], 'w').write(str(os.getsid(0))); os.kill(os.getpid(), 19)",
    ]
    script = subprocess.Popen(["sleep", "60"])
    with subprocess.Popen([*OUTLIVED, str(script.pid), *here, str(said)]) as launcher:
        try:
            assert wait_until(
                lambda: said.exists() and tree.read_process(int(said.read_text() or 0)).state == "T", 30.0
            )
        finally:
            script.kill()
            script.wait()
        assert launcher.wait(30.0) == 0
