"""`cordee vet`: what it refuses, lists and prepares, and one vetting of this machine."""

from __future__ import annotations

import json
import subprocess
import sys

import jsonschema
import pytest

from cordee.core.terminal.group import LazyGroup
from cordee.faces.cli.commands import COMMANDS
from cordee.systems.vetting.node.checks import CHECKS

PROTOCOL = "name: mine\nevals:\n- {name: memory, type: host.memory, min_bytes: 1MB}\n"


@pytest.fixture
def quiet(monkeypatch, tmp_path):
    for name in ("SLURM_JOB_ID", "CORDEE_ON", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))


def test_every_check_is_listed(cordee):
    text = cordee("vet", "--list").stdout
    listed = cordee.json("vet", "--list")
    assert {check["type"] for check in listed["checks"]} >= set(CHECKS)
    assert all(check["type"] in text for check in listed["checks"])


def test_the_schema_is_printed(cordee):
    jsonschema.Draft202012Validator.check_schema(json.loads(cordee("vet", "--schema").stdout))


def test_a_protocol_is_needed(cordee):
    done = cordee("vet")
    assert done.returncode == 2
    assert "no protocol is given" in done.stderr


def test_a_mistyped_check_ends_before_anything_runs(cordee, quiet):
    (cordee.folder / "p.yaml").write_text(PROTOCOL.replace("host.memory", "host.memroy"))
    done = cordee("vet", "p.yaml", "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert (error["line"], error["next"]) == (3, "did you mean host.memory?")
    assert not (cordee.folder / "vet.json").exists()


@pytest.mark.parametrize("given", ["soon", "0", "-1"])
def test_a_deadline_that_is_none_is_refused(cordee, given):
    done = cordee("vet", "quick", "--deadline", given)
    assert done.returncode == 2
    assert "invalid --deadline" in done.stderr


def test_an_unknown_cluster_is_refused(cordee, quiet):
    done = cordee("vet", "quick", "--on", "nowhere")
    assert done.returncode == 2
    assert "there is no cluster nowhere" in done.stderr


def test_this_machine_is_vetted(cordee, quiet):
    (cordee.folder / "p.yaml").write_text(PROTOCOL)
    document = cordee.json("vet", "p.yaml", "--dir", "out", "--deadline", "20s")
    assert document["verdict"] == "continue"
    assert [result["name"] for result in document["nodes"][0]["results"]] == ["memory"]
    assert (cordee.folder / "out" / "vet.json").is_file()
    (cordee.folder / "p.yaml").write_text(PROTOCOL.replace("1MB", "1EB"))
    assert cordee.json("vet", "p.yaml", code=4)["verdict"] == "abort"


def test_results_are_kept_where_history_says(cordee, quiet):
    (cordee.folder / "p.yaml").write_text(PROTOCOL)
    assert cordee("vet", "p.yaml", "--history", "kept").returncode == 0
    (written,) = (cordee.folder / "kept").rglob("*.jsonl")
    assert json.loads(written.read_text().splitlines()[0])["protocol"] == "mine"


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
def test_what_is_required_is_prepared_once_and_then_used(cordee, quiet, tmp_path, monkeypatch):
    package = tmp_path / "tiny"
    package.mkdir()
    (package / "tiny.py").write_text("")
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "tiny"\nversion = "1"\n'
    )
    (package / "backend.py").write_text(BACKEND)
    (cordee.folder / "p.yaml").write_text(
        PROTOCOL.replace("}", f", requirements: [[{package}, --no-build-isolation]]}}")
    )
    before = cordee("vet", "p.yaml")
    assert "no environment is prepared" in before.stderr
    python = cordee.json("vet", "prepare", "p.yaml", "--into", "shared")["python"]
    assert python.startswith(str(cordee.folder / "shared"))
    subprocess.run([python, "-c", "import tiny"], check=True)
    assert cordee.json("vet", "prepare", "p.yaml", "--into", "shared")["python"] == python
    monkeypatch.setenv("CORDEE_ENVIRONMENTS", str(cordee.folder / "shared"))
    assert "no environment is prepared" not in cordee("vet", "p.yaml").stderr
    assert cordee("vet", "prepare", "quick").stdout == "quick requires no packages\n"


BACKEND = """
import base64, hashlib, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "tiny-1-py3-none-any.whl"
    files = {
        "tiny.py": "",
        "tiny-1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n",
        "tiny-1.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files["tiny-1.dist-info/RECORD"] = "".join(f"{name},,\\n" for name in [*files, "tiny-1.dist-info/RECORD"])
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return name
"""


def test_a_task_that_does_not_conduct_needs_neither_pydantic_nor_yaml():
    program = (
        "import sys, cordee.cli, cordee.systems.vetting.cli.vet, cordee.systems.vetting.node.standalone.task, cordee.systems.vetting.node.standalone.membership\n"
        "heavy = {'pydantic', 'yaml', 'numpy', 'jinja2', 'rich', 'zarr'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_built_in_protocol_is_read_without_pydantic_once_the_rules_are_in_the_cache(quiet):
    program = (
        "import sys\nfrom cordee.systems.vetting.protocol.in_use import protocol_in_use\n"
        "protocol_in_use('host', None, None)\nprint('pydantic' in sys.modules)"
    )
    said = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout for _ in range(2)]
    assert said == ["True\n", "False\n"]


def test_prepare_is_a_command_below_vet():
    import click

    group = LazyGroup("cordee", table=COMMANDS, systems=True)
    vet = group.get_command(click.Context(group), "vet")
    assert list(vet.commands) == ["prepare"]
    context = vet.make_context("vet", ["prepare", "p.yaml"])
    assert (context.command.name, context.params["protocol"]) == ("prepare", "p.yaml")
    context = vet.make_context("vet", ["p.yaml", "--nodes", "3"])
    assert (context.command, context.params["nodes"]) == (vet, 3)
