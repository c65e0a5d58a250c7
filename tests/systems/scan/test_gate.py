"""A job with a poisoned file does not start, and a key does not go unnoticed."""

from __future__ import annotations

import json
import os
import pickle
import time
from pathlib import Path

import pytest

from cordee.job.submit.prepare import prepare
from cordee.systems.scan.node.scanner import Scanner
from cordee.systems.scan.seen import SeenVerdicts

from . import made_files as made

WANDB = "a3f90b1c2d4e5f60718293a4b5c6d7e8f9012345"


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job folder; returns what `cordee check --json` says of it with some more lines in its document."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")

    def check(run="python train.py", more="", *arguments):
        (folder / "cordee.toml").write_text(f'name = "made"\nrun = "{run}"\n{more}\n')
        result = made.cordee("check", folder, "--json", "--runs", tmp_path / "runs", *arguments)
        document = json.loads(result.output)
        return result.exit_code, {one["rule"]: one for one in document["findings"] if one["rule"].startswith("scan")}

    check.folder = folder
    return check


def poison(path: Path) -> None:
    path.write_bytes(made.call("os", "system", b"touch canary"))


def test_a_clean_job_has_nothing_to_say(job):
    (job.folder / "model.pt").write_bytes(pickle.dumps({"a": 1}))
    assert job("python train.py --from model.pt") == (0, {})


@pytest.mark.parametrize(
    "run", ["python train.py model.pt", "python train.py --from=model.pt", "python train.py --from model.pt"]
)
def test_a_poisoned_file_of_the_command_stops_the_job(job, run):
    poison(job.folder / "model.pt")
    code, findings = job(run)
    assert code == 2
    assert findings["scan-model-pickle-call"]["severity"] == "error"
    assert findings["scan-model-pickle-call"]["file"].endswith("model.pt")


def test_folders_of_runs_among_checkpoints_are_cordees_own(job):
    runs = job.folder / "runs/made-1"
    runs.mkdir(parents=True)
    poison(runs / "node.zip")
    more = '[checkpoint]\npath = "."\npattern = "step-*"\nresume = "self"'
    assert job("python train.py", more, "--runs", job.folder / "runs")[1] == {}
    poison(job.folder / "step-1")
    assert "step-1" in job("python train.py", more, "--runs", job.folder / "runs")[1]["scan-model-pickle-call"]["file"]


def test_a_poisoned_checkpoint_or_data_set_stops_the_job(job):
    (job.folder / "saves" / "step-1").mkdir(parents=True)
    poison(job.folder / "saves" / "step-1" / "state.pt")
    checkpoint = '[checkpoint]\npath = "saves"\npattern = "step-*"\nresume = "self"'
    assert job(more=checkpoint)[0] == 2
    os.unlink(job.folder / "saves" / "step-1" / "state.pt")
    assert job(more=checkpoint)[1] == {}
    poison(job.folder / "images.bin")
    assert job(more='[data.images]\nfrom = "images.bin"')[0] == 2


def test_a_repository_in_hugging_faces_cache_and_what_a_script_loads_are_looked_at(job, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    kept = tmp_path / "hf" / "hub" / "models--acme--bert"
    for commit in ("old", "new"):
        (kept / "snapshots" / commit).mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("new")
    poison(kept / "snapshots" / "old" / "pytorch_model.bin")
    assert job("python train.py --model acme/bert") == (0, {})
    assert job("python train.py --model acme/bert --revision old")[0] == 2
    (job.folder / "train.py").write_text('model = load.from_pretrained("acme/bert", revision=commit)\n')
    (kept / "refs" / "main").unlink()
    assert job()[1]["scan-model-pickle-call"]["file"].endswith("old/pytorch_model.bin")
    poison(tmp_path / "elsewhere.pt")
    (job.folder / "train.py").write_text(f'torch.load("{tmp_path}/elsewhere.pt")\n')
    assert job()[1]["scan-model-pickle-call"]["file"] == str(tmp_path / "elsewhere.pt")


def test_a_key_in_the_containers_document_is_told(job, tmp_path):
    (tmp_path / "root").mkdir()
    (job.folder / "env.toml").write_text(f'image = "{tmp_path}/root"\n[env]\nWANDB_API_KEY = "{WANDB}"\n')
    _, findings = job(more='environment = "./env.toml"')
    assert (findings["scan-secret-wandb"]["file"], findings["scan-secret-wandb"]["line"]) == (
        str(job.folder / "env.toml"),
        3,
    )


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_a_snapshot_carries_no_key_and_no_poison_unless_it_is_asked_to(job, tmp_path):
    (job.folder / "keyed.py").write_text(f'KEY = 1\nwandb.login(key="{WANDB}")\n')
    (job.folder / "site.yml").write_text("a: !!python/name:os.system\n")  # says something to a loader, and is no model
    code, findings = job()
    assert (code, findings["scan-secret-wandb"]["severity"]) == (0, "warn")
    assert "copy_anyway" in findings["scan-secret-wandb"]["next"]
    assert made.cordee("run", job.folder, "--runs", tmp_path / "runs").exit_code == 0
    manifest = json.loads(next((tmp_path / "runs").glob("*/code.json")).read_text())["files"]
    assert "a key" in manifest["keyed.py"]["skipped"]
    assert "sha256" in manifest["site.yml"]
    assert not [path for path in (tmp_path / "runs").rglob("*") if path.is_file() and WANDB in path.read_text("latin1")]
    assert job(more='code = "snapshot"')[0] == 2
    assert job(more='code = "snapshot"\n[scan]\ncopy_anyway = ["k*.py"]') == (0, {})
    os.unlink(job.folder / "keyed.py")
    poison(job.folder / "weights")
    assert job()[0] == 2


def test_files_of_variables_and_configurations_with_passwords_are_not_copied_and_named(job, tmp_path):
    (job.folder / ".env").write_text("SMTP_PASSWORD=short\n")
    (job.folder / ".env.example").write_text("SMTP_PASSWORD=\n")
    (job.folder / "conf.yaml").write_text("lr: 0.1\ndatabase:\n  user: app\n  password: aB3dE5gH\n")
    (job.folder / "model.yaml").write_text("pad_token: <pad>\ntoken: bert-base-uncased\n")
    code, _ = job()
    said = json.loads(made.cordee("check", job.folder, "--json", "--runs", tmp_path / "runs").output)["findings"]
    named = {os.path.basename(one["file"]): one for one in said if one["rule"] == "scan-secret-assigned"}
    assert (code, set(named)) == (0, {".env", "conf.yaml"})
    assert "line 4" in named["conf.yaml"]["text"]
    assert "outside of the job's folder" in named[".env"]["next"]
    held_back = keep_names(job.folder, tmp_path / "runs")
    assert held_back == {".env", "conf.yaml"}


def test_moving_keys_is_advised_only_where_it_works(job, tmp_path):
    (job.folder / "keyed.py").write_text(f'wandb_api_key = "{WANDB}"\n')
    (job.folder / "part.py").write_text(f'wandb_api_key = "{WANDB} x"\n')
    (job.folder / "conf.json").write_text(json.dumps({"wandb_api_key": WANDB}))
    job()
    said = json.loads(made.cordee("check", job.folder, "--json", "--runs", tmp_path / "runs").output)["findings"]
    advised = {os.path.basename(one["file"]) for one in said if "--move-keys" in (one.get("next") or "")}
    assert advised == {"keyed.py"}


def keep_names(folder: Path, runs: Path) -> set[str]:
    """Return what the snapshot of a run of a job would not carry."""
    prepared = prepare(str(folder), "local", {}, runs)
    return set(prepared.plan.step.systems["scan"]["held_back"])


def test_what_is_unknown_is_told_and_stops_a_job_that_asks_for_it(job):
    (job.folder / "model.pt").write_bytes(made.call("somebodys.library", "Model"))
    code, findings = job("python train.py model.pt")
    assert (code, findings["scan-model-pickle-name"]["severity"]) == (0, "warn")
    assert job("python train.py model.pt", '[scan]\npolicy = "block"')[0] == 2
    assert job("python train.py model.pt", '[scan]\npolicy = "block"\nallow = ["somebodys.library.Model"]') == (0, {})


def test_a_job_may_ask_for_less_where_the_site_demands_nothing(job):
    poison(job.folder / "model.pt")
    code, findings = job("python train.py model.pt", '[scan]\npolicy = "warn"')
    assert (code, findings["scan-model-pickle-call"]["severity"]) == (0, "warn")
    assert job("python train.py model.pt", '[scan]\npolicy = "off"') == (0, {})


def test_what_the_site_demands_no_job_and_no_person_weakens(job, tmp_path, monkeypatch):
    site, own = tmp_path / "site", tmp_path / "config"
    for folder, text in ((site, 'policy = "block"'), (own / "cordee" / "clusters", 'policy = "warn"')):
        folder.mkdir(parents=True)
        (folder / "local.toml").write_text(f"[scan]\n{text}\n")
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(site))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(own))
    (job.folder / "model.pt").write_bytes(made.call("somebodys.library", "Model"))
    code, findings = job("python train.py model.pt", '[scan]\npolicy = "off"')
    assert code == 2
    assert {"scan-policy", "scan-model-pickle-name"} <= findings.keys()


def test_a_key_in_the_document_is_told_with_its_line_and_shown_nowhere(job, tmp_path):
    more = f'[env]\nWANDB_API_KEY = "{WANDB}"'
    _, findings = job(more=more)
    assert findings["scan-secret-wandb"]["line"] == 4
    shown = made.cordee("check", job.folder, "--runs", tmp_path / "runs").output
    assert "WANDB_API_KEY" in shown
    assert WANDB not in shown


def test_a_file_that_was_looked_at_is_not_looked_at_again(tmp_path):
    path = tmp_path / "a"
    poison(path)
    os.utime(path, ns=(1, 1))
    time.sleep(2.1)  # a change within two seconds would not show in its times
    until = time.monotonic() + 60
    for patience in (60.0, 0.0):  # no time at all: whoever looked again would say "unknown"
        seen = SeenVerdicts(tmp_path / "seen")
        with Scanner(patience=lambda size, patience=patience: patience) as scanner:
            assert [one.verdict for one in seen.verdicts(scanner, [str(path)], (), until)] == ["block"]
        seen.close()
    path.write_bytes(pickle.dumps({"a": 1}))
    os.utime(path, ns=(1, 1))  # as before, but for the time of its inode
    seen = SeenVerdicts(tmp_path / "seen")
    with Scanner() as scanner:
        assert [one.verdict for one in seen.verdicts(scanner, [str(path)], (), until)] == ["clean"]
        assert [one.verdict for one in seen.verdicts(scanner, [str(path)], (), 0.0)] == ["unknown"]
    seen.close()


def test_a_memory_that_is_broken_or_cannot_be_written_is_none(tmp_path):
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "seen.sqlite").write_bytes(b"no database" * 100)
    poison(tmp_path / "a")
    for folder in (tmp_path / "seen", tmp_path / "a"):
        seen = SeenVerdicts(folder)
        with Scanner() as scanner:
            assert [
                one.verdict for one in seen.verdicts(scanner, [str(tmp_path / "a")], (), time.monotonic() + 60)
            ] == ["block"]
        seen.close()
