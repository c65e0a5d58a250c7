"""What a job will run with is looked at before it is submitted."""

from __future__ import annotations

import json
import os

import pytest

from .. import made_files
from . import made_packages as made


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Returns what `cordee check` finds for a job with an environment that has a PyTorch, and a profile."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder, env = tmp_path / "job", tmp_path / "env"
    site = env / "lib" / "python3.11" / "site-packages"
    (site / "torch").mkdir(parents=True)
    (env / "bin").mkdir()
    (env / "pyvenv.cfg").touch()
    (env / "bin" / "python").symlink_to("/bin/true")
    folder.mkdir()
    (folder / "train.py").touch()

    def checked(profile="", run=None, torch=("2.4.0+cu121", "'12.1'"), more="[need]\ngpus_per_node = 1\n", on="site"):
        (tmp_path / "config" / "cordee" / "clusters").mkdir(parents=True, exist_ok=True)
        text = f'scheduler = "local"\ngpus = 4\n{profile}'
        (tmp_path / "config" / "cordee" / "clusters" / "site.toml").write_text(text)
        said = f"__version__ = '{torch[0]}'\ncuda: Optional[str] = {torch[1]}\nhip: Optional[str] = None\n"
        (site / "torch" / "version.py").write_text(said)
        (folder / "cordee.toml").write_text(
            f'name = "made"\nrun = "{run or env / "bin" / "python"} train.py"\n{more}\n'
        )
        result = made_files.cordee("check", folder, "--json", "--on", on, "--runs", tmp_path / "runs")
        found = [one for one in json.loads(result.output)["findings"] if one["rule"].startswith("scan")]
        return {one["rule"].removeprefix("scan-"): one["severity"] for one in found}

    checked.site, checked.env, checked.folder = site, env, folder
    return checked


def test_a_pytorch_without_gpus_in_a_job_with_gpus_is_told(check):
    assert check(torch=("2.4.0+cpu", "None")) == {"package-torch-cpu": "warn"}
    assert check(torch=("2.4.0+cpu", "None"), more="") == {}
    assert check() == {}


def test_the_environment_is_the_one_that_the_setup_activates(check):
    more = "[need]\ngpus_per_node = 1\n"
    setup = f'setup = ["source {check.env}/bin/activate"]\n'
    assert check(run="python", torch=("2.4.0+cpu", "None"), more=setup + more) == {"package-torch-cpu": "warn"}


@pytest.mark.parametrize(
    ("driver", "cuda", "told"),
    [("515.43.04", "12.1", True), ("525.60.13", "12.8", False), ("570.86", "13.0", True), ("580.65.06", "13.0", False), ("450.80.02", "11.8", False)],
)  # fmt: skip
def test_a_build_for_a_newer_cuda_than_the_driver_is_told(check, driver, cuda, told):
    found = check(f'[scan]\ngpu_driver = "{driver}"\n', torch=("2.4.0", f"'{cuda}'"))
    assert ("package-torch-driver" in found) is told


def test_an_environment_that_runs_code_of_itself_or_is_known_to_be_bad_stops_the_job(check, tmp_path):
    (check.site / "x.pth").write_text("import os; os.system('touch canary')\n")
    assert check() == {"package-pth": "error"}
    (check.site / "x.pth").write_text("import somebody\n")
    assert check() == {"package-pth": "warn"}
    assert check('[scan]\npolicy = "block"\n') == {"package-pth": "error"}
    (check.site / "x.pth").unlink()
    (check.site / "evil-1.0.dist-info").mkdir()
    (check.site / "numpy-1.0.dist-info").mkdir()
    place = made.snapshot(
        tmp_path / "all.zip", made.record("MAL-1", "evil", [{"introduced": "0"}]), made.record("X-1", "numpy", [{"introduced": "0"}])
    )  # fmt: skip
    assert check(f'[scan]\nadvisories = "{place}"\n') == {"package-malicious": "error", "package-advisory": "info"}
    assert check('[scan]\nadvisories = "/no/such/snapshot"\n') == {"packages": "warn"}


def test_what_the_project_asks_for_is_told_and_stops_only_where_a_site_wants_it(check):
    (check.folder / "requirements.txt").write_text("--index-url http://a.example/simple\ncentre-x\nnumpy==1.0\n")
    site = '[scan]\ninternal = ["centre-*"]\n'
    assert check() == {"package-index-insecure": "warn"}
    assert check(site + 'policy = "block"\n') == {"package-index-insecure": "error"}
    (check.folder / "requirements.txt").write_text("centre-x\n")
    assert check(site) == {"package-confusion": "warn"}
    (check.folder / "requirements.txt").write_text("numpy\n")
    assert check(site) == {}
    assert os.listdir(check.folder)


def test_a_job_in_an_image_that_is_not_here_is_not_told_of_the_pytorch_that_is(check, tmp_path, monkeypatch):
    (tmp_path / "pool.toml").write_text('scheduler = "htcondor"\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path))
    (check.folder / "env.toml").write_text('image = "docker://python:3.12"\n')
    more = '[need]\ngpus_per_node = 1\nmemory = "1GB"\n'
    torch = ("2.4.0+cpu", "None")
    assert check(torch=torch, more=more, on="pool") == {"package-torch-cpu": "warn"}
    assert check(torch=torch, more=f'environment = "./env.toml"\n{more}', on="pool") == {}


def test_the_pytorch_of_an_image_and_what_is_bad_in_it_are_told_as_well(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root, folder = tmp_path / "root", tmp_path / "job"
    site = root / "usr" / "lib" / "python3" / "dist-packages"
    (site / "torch").mkdir(parents=True)
    (root / "etc").mkdir()
    (root / "etc" / "os-release").write_text("ID=debian\n")
    (site / "torch" / "version.py").write_text(
        "__version__ = '2.4.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
    )
    (site / "x.pth").write_text("import somebody\n")
    folder.mkdir()
    (folder / "train.py").touch()
    (folder / "env.toml").write_text(f'image = "{root}"\n')
    text = 'name = "made"\nrun = "python train.py"\nenvironment = "./env.toml"\n[need]\ngpus_per_node = 1\n'
    (folder / "cordee.toml").write_text(text)
    result = made_files.cordee("check", folder, "--json", "--runs", tmp_path / "runs")
    found = {
        one["rule"]: one["file"] for one in json.loads(result.output)["findings"] if one["rule"].startswith("scan")
    }
    assert found == {"scan-package-torch-cpu": str(root), "scan-package-pth": str(root)}
