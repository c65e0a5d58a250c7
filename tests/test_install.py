"""Cordée as people get it: a wheel made from the source archive, installed by pip and as a tool of its own by uv."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.usefixtures("real")

ROOT = Path(__file__).parents[1]
SCRIPT = "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n"


def clean_environment(**changes: str) -> dict[str, str]:
    """Return this environment without what would lead to this checkout or its virtual environment."""
    own = Path(sys.prefix) / "bin"
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("CORDEE_", "PYTHON", "VIRTUAL_ENV"))
    }
    env["PATH"] = os.pathsep.join(part for part in env["PATH"].split(os.pathsep) if Path(part) != own)
    return {**env, **changes}


def call(*argv: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env=env or clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source archive of this tree, and the wheel made from it."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


def must_work(cordee: Path, folder: Path) -> None:
    """Take a script through all of it, with two nodes."""
    job = folder / "job"
    job.mkdir()
    (job / "train.py").write_text(SCRIPT)
    assert "cordee init" in call(cordee, "--help", cwd=job)
    call(cordee, "init", cwd=job)
    assert json.loads(call(cordee, "check", "--json", "--set", "need.nodes=2", cwd=job))["valid"]
    run = json.loads(call(cordee, "run", "--nodes", "2", "--json", cwd=job))
    assert (run["state"], len(run["nodes"])) == ("finished", 2)
    assert "<svg" in Path(run["report"]).read_text()
    assert "rank 1 of 2" in call(cordee, "logs", "--rank", "1", cwd=job)


@pytest.mark.gate
def test_the_wheel_holds_the_package_and_nothing_else(dist, wheel):
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.partition("/")[0] for name in names}
    assert len(folders) == 2
    assert "cordee" in folders
    assert "cordee/faces/report/template.html.j2" in names
    assert "cordee/py.typed" in names
    assert {f"cordee/systems/environments/node/spank/{name}" for name in ("cordee.c", "cordee.h", "node.c")} <= set(
        names
    )
    assert not [name for name in names if name.endswith(".pyc") or "__pycache__" in name]
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        inside = {name.partition("/")[2].partition("/")[0] for name in archive.getnames()}
    assert inside - {""} <= {"src", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "PKG-INFO", ".gitignore"}


def needed(name: str, extras: frozenset[str] = frozenset()) -> dict[str, metadata.Distribution]:
    """Return what an installed package needs, and what that needs, as they say themselves."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [(name, extras)]
    while waiting:
        name, extras = waiting.pop()
        for line in metadata.requires(name) or []:
            needs = Requirement(line)
            holds = needs.marker is None or any(needs.marker.evaluate({"extra": one}) for one in (*extras, ""))
            if holds and needs.name not in found:
                found[needs.name] = metadata.distribution(needs.name)
                waiting.append((needs.name, frozenset(needs.extras)))
    return found


def test_the_wheel_runs_with_what_it_says_it_needs_and_nothing_else(wheel, tmp_path):
    call(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    call(*pip, "install", "-q", "--no-compile", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    dependencies = needed("cordee")
    assert "torch" not in dependencies
    for one in dependencies.values():
        for top in {path.parts[0] for path in one.files or [] if path.parts[0] not in ("..", "__pycache__")}:
            if not (packages / top).exists():
                (packages / top).symlink_to(one.locate_file(top))
    must_work(python.with_name("cordee"), tmp_path)


@pytest.mark.campaign
def test_the_wheel_installs_and_runs_by_pip(wheel, tmp_path):
    call(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    call(*pip, "install", "-q", "--no-compile", wheel, cwd=tmp_path)
    installed = {entry["name"] for entry in json.loads(call(*pip, "list", "--format=json", cwd=tmp_path))}
    assert "cordee" in installed
    assert "torch" not in installed
    must_work(python.with_name("cordee"), tmp_path)


@pytest.mark.campaign
@pytest.mark.gate
def test_the_wheel_installs_and_runs_as_a_uv_tool(wheel, tmp_path):
    env = clean_environment(UV_TOOL_DIR=str(tmp_path / "tools"), UV_TOOL_BIN_DIR=str(tmp_path / "bin"))
    uv = Path(sys.executable).with_name("uv")
    call(uv, "tool", "install", "--quiet", "--python", sys.executable, wheel, cwd=tmp_path, env=env)
    assert not list((tmp_path / "tools").glob("cordee/lib/*/site-packages/torch"))
    must_work(tmp_path / "bin" / "cordee", tmp_path)
