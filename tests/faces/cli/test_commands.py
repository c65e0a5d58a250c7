"""Every command: its help, its JSON, its exit code, its errors."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from cordee.faces.cli import _ELSEWHERE
from cordee.faces.cli.commands import COMMANDS

from ...job.conftest import FakeSlurm

ERROR_KEYS = {"kind", "text", "file", "line", "given", "allowed", "next"}


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_with_an_example(cordee, name):
    done = cordee(name, "--help")
    assert done.returncode == 0
    assert "Example:" in done.stdout
    assert f"cordee {name}" in done.stdout


def test_an_unknown_command_names_the_nearest(cordee):
    done = cordee("chekc")
    assert done.returncode == 2
    assert "did you mean 'check'?" in done.stderr


def test_words_of_other_tools_lead_to_ours(cordee):
    assert {*_ELSEWHERE.values()} <= {*COMMANDS}
    assert not {*_ELSEWHERE} & {*COMMANDS}
    assert "did you mean 'runs'?" in cordee("squeue").stderr


def test_an_unknown_option_is_a_usage_error_in_json_too(cordee):
    done = cordee("runs", "--json", "--nope")
    assert done.returncode == 2
    assert set(json.loads(done.stdout)["error"]) == ERROR_KEYS


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_a_run_from_first_to_last_command(cordee):
    cordee.job(toml="[need]\nnodes = 2\n[vet]\nmax_load = 1000.0")
    checked = cordee.json("check")
    assert (checked["valid"], checked["nodes"], checked["ranks"]) == (True, 2, 2)
    assert "cordee.control.agent.agent" in checked["script"]
    run = cordee.json("run")
    assert (run["state"], run["exit_code"], run["segments"], run["restarts"]) == ("finished", 0, 1, 0)
    assert [node["verdict"] for node in run["nodes"]] == ["healthy", "healthy"]
    assert os.path.isfile(run["report"])
    assert cordee.json("show")["run"] == run["run"]
    assert cordee.json("show", run["run"][:8])["folder"] == run["folder"]
    assert [entry["id"] for entry in cordee.json("runs")["runs"]] == [run["run"]]
    lines = cordee.json("logs", "--rank", "1")["lines"]
    assert [line["line"] for line in lines] == [f"step {step}" for step in range(5)]
    assert cordee("logs", "-n", "1", "--rank", "0").stdout == "[0] step 4\n"
    assert cordee.json("report")["metrics"]["loss"]["first"] == 1.0
    assert "Where the time went" in cordee("report").stdout
    watched = cordee("watch", "--once").stdout
    assert "finished" in watched
    assert "step 4" in watched
    refused = cordee("resume")
    assert refused.returncode == 2
    assert "has finished" in refused.stderr


@pytest.mark.usefixtures("real")
def test_a_failed_run_exits_1_and_keeps_the_ranks_code(cordee):
    cordee.job(script="import sys; sys.exit(9)", toml="[restart]\nretries = 0")
    run = cordee.json("run", code=1)
    assert (run["state"], run["exit_code"]) == ("failed", 9)


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_a_run_that_vetting_stops_exits_4(cordee):
    cordee.job(toml='[vet]\ncommands = ["no-such-command-here"]')
    run = cordee.json("run", code=4)
    assert run["state"] == "failed"
    assert run["nodes"][0]["verdict"] == "bad"
    assert "no-such-command-here" in run["text"]


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.usefixtures("real")
def test_a_wrong_document_exits_2_with_line_and_nearest_name(cordee, command):
    cordee.job(toml="[need]\nnode = 2")
    done = cordee(command, "--json")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    finding = document["findings"][0] if command == "check" else document["error"]
    assert finding["line"] == 4
    assert finding["file"].endswith("cordee.toml")
    assert "nodes" in finding["next"]
    assert not cordee.runs.exists()


@pytest.mark.usefixtures("real")
def test_a_missing_document_says_what_to_do(cordee):
    done = cordee("run")
    assert done.returncode == 2
    assert "cordee init" in done.stderr


def test_an_unknown_cluster_and_an_unknown_run_are_named(cordee):
    cordee.job()
    error = cordee.json("check", "--on", "locl", code=2)["error"]
    assert error["given"] == "locl"
    assert "local" in error["allowed"]
    assert cordee.json("show", "nope", code=2)["error"]["kind"] == "run_not_found"


def test_init_reads_an_sbatch_script_and_lists_what_it_leaves_out(cordee):
    script = cordee.folder / "my.job.txt"
    script.write_text("#!/bin/sh\n#SBATCH -N 2 --array=1-3\nsrun python train.py\n")
    done = cordee("init", "--from", "my.job.txt")
    assert done.returncode == 0
    assert "line 2: --array=1-3" in done.stderr
    assert "--array" not in done.stdout
    (cordee.folder / "cordee.toml").unlink()
    document = json.loads(cordee("init", "--from", "my.job.txt", "--json").stdout)
    assert document["source"].endswith("my.job.txt")
    assert [(left["line"], left["text"]) for left in document["left"]] == [(2, "--array=1-3")]
    assert "nodes = 2" in document["text"]


@pytest.mark.parametrize("name", ["job.sbatch", "deep/er/job.slurm", "job.sh"])
def test_init_takes_the_path_of_a_batch_script_and_writes_here(cordee, name):
    script = cordee.folder / name
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("#!/usr/bin/env bash\n#SBATCH -N 2\nsrun python train.py\n")
    document = json.loads(cordee("init", name, "--json").stdout)
    assert (document["path"], document["source"]) == (str(cordee.folder / "cordee.toml"), name)
    assert "nodes = 2" in document["text"]


@pytest.mark.parametrize("text", ["print(1)\n", "#!/usr/bin/env python3\n#SBATCH -N 2\nprint(1)\n", ""])
def test_init_refuses_a_file_that_is_no_batch_script(cordee, text):
    (cordee.folder / "some.py").write_text(text)
    error = cordee.json("init", "some.py", code=2)["error"]
    assert (error["text"], error["line"]) == ("is no batch script", 1)
    assert not (cordee.folder / "cordee.toml").exists()
    assert "no folder" in cordee.json("init", "none.sbatch", code=2)["error"]["text"]


@pytest.mark.usefixtures("real")
def test_init_writes_a_document_that_check_accepts_and_never_overwrites(cordee):
    (cordee.folder / "train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--resume')\np.parse_args()\n"
    )
    assert cordee("init").returncode == 0
    assert cordee.json("check")["valid"] is True
    before = (cordee.folder / "cordee.toml").read_text()
    again = cordee("init")
    assert again.returncode == 2
    assert (cordee.folder / "cordee.toml").read_text() == before


def test_explain_says_where_each_value_came_from(cordee):
    cordee.job(toml="[need]\nnodes = 2")
    text = cordee(
        "check", "--explain", "--set", "restart.retries=7", env={**os.environ, "CORDEE_NEED_SPARE_NODES": "1"}
    ).stdout
    rows = {line.split()[0]: line for line in text.splitlines() if "." in line.split(" ")[0]}
    assert "cordee.toml:4" in rows["need.nodes"]
    assert "flag" in rows["restart.retries"]
    assert "CORDEE_NEED_SPARE_NODES" in rows["need.spare_nodes"]
    assert "default" in rows["sampling.interval"]


def test_clusters_are_listed_and_shown(cordee):
    assert "local" in cordee.json("cluster", "list")["clusters"]
    assert cordee.json("cluster", "show", "local")["scheduler"] == "local"


def test_a_full_disk_is_named_and_leaves_nothing(cordee):
    cordee.job()
    (cordee.folder / "weights.bin").write_bytes(b"x" * 2_000_000)
    small = cordee.folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        done = cordee("run", "--runs", str(small / "runs"))
        assert done.returncode == 5
        assert "No space left" in done.stderr
        assert list((small / "runs").iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_read_only_place_is_named(cordee):
    cordee.job()
    small = cordee.folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,ro", "tmpfs", str(small)], check=True)
    try:
        done = cordee("run", "--runs", str(small / "runs"))
        assert done.returncode == 5
        assert "Read-only file system" in done.stderr
        assert "--runs" in done.stderr
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.usefixtures("real")
def test_a_profile_is_drafted_where_slurm_answers_and_not_elsewhere(cordee, tmp_path):
    env = {**os.environ, **FakeSlurm(tmp_path).environ}
    drafted = cordee("cluster", "discover", env=env)
    assert drafted.returncode == 0, drafted.stderr
    assert "[partitions.debug]" in drafted.stdout
    document = json.loads(cordee("cluster", "discover", "--name", "mine", "--write", "--json", env=env).stdout)
    assert (document["written"], document["name"]) == (True, "mine")
    refused = cordee("cluster", "discover", "--name", "mine", "--write", env=env)
    assert refused.returncode == 2
    assert "--force" in refused.stderr
    listed = cordee("cluster", "list", env=env)
    assert listed.stdout.split() == ["local", "mine", "slurm"]
    shown = cordee("cluster", "show", "slurm", env=env).stdout
    assert [line.split() for line in shown.splitlines() if line.strip().startswith("debug")]
    absent = cordee("cluster", "discover", "--json", env={**env, "SLURM_CONF": "/nowhere"})
    assert absent.returncode == 2
    assert json.loads(absent.stdout)["error"]["kind"] == "usage"
