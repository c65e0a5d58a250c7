"""`environment` of a job: its EDF resolved, its image found, an engine chosen; what is wrong is said before anything runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cordee.backends.slurm.script import batch_script
from cordee.core.findings import Finding
from cordee.job.load import load_job
from cordee.job.plan.compile import make_plan
from cordee.job.plan.model import EnvironmentPlan, Plan
from cordee.job.plan.render import render_plan
from cordee.job.submit.prepare import create_run, prepare
from cordee.runs.folder import RunFolder
from cordee.systems.environments.node.document import Environment, environment_of
from cordee.systems.environments.node.engines import ENGINES
from cordee.systems.environments.node.engines._base import Engine, MissingCapability

from ...job.plan.conftest import HEAD, Make


class Able(Engine):
    """An engine that this machine can run."""

    name = "namespace"

    def missing(self, environment: Environment) -> list[MissingCapability]:
        assert environment.root is not None
        return []


class Unable(Engine):
    """An engine that this machine cannot run."""

    name = "unable"

    def missing(self, environment: Environment) -> list[MissingCapability]:
        return [MissingCapability("fuse", "/dev/fuse is not there", "engine = podman")]


@pytest.fixture(autouse=True)
def _engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(ENGINES):
        monkeypatch.delitem(ENGINES, name)
    monkeypatch.setitem(ENGINES, "apptainer", f"{__name__}:Other")
    monkeypatch.setitem(ENGINES, "namespace", f"{__name__}:Able")
    monkeypatch.setenv("EDF_PATH", str(tmp_path / "edf"))
    (tmp_path / "edf").mkdir()
    (tmp_path / "root").mkdir()


def write_edf(path: Path, text: str) -> None:
    path.write_text(text)


def planned(plan: Plan) -> EnvironmentPlan:
    assert plan.step.environment is not None
    return plan.step.environment


def only(findings: list[Finding], rule: str) -> Finding:
    (found,) = [finding for finding in findings if finding.rule == rule]
    return found


def test_the_plan_holds_the_whole_environment_and_the_first_engine_that_can_run_it(make: Make, tmp_path: Path) -> None:
    write_edf(
        tmp_path / "job/env.toml", f'image = "{tmp_path}/root"\nmounts = ["./:/code"]\n[env]\nA = "${{EDF_PATH}}"\n'
    )
    _, plan, findings = make(HEAD + 'environment = "env.toml"\n')
    assert findings == []
    environment = environment_of(planned(plan).document)
    assert planned(plan).engine == "namespace"
    assert environment.root is not None
    assert (environment.root.kind, environment.root.path) == ("folder", f"{tmp_path}/root")
    assert environment.env == {"A": str(tmp_path / "edf")}
    assert [(mount.source, mount.target) for mount in environment.mounts] == [(f"{tmp_path}/job", "/code")]
    assert planned(plan).files == (f"{tmp_path}/job/env.toml",)
    text = render_plan(plan, "")
    assert f"environment {tmp_path}/job/env.toml, by namespace" in text
    assert f"mount       {tmp_path}/job at /code" in text


def test_a_name_is_looked_up_on_the_search_path(make: Make, tmp_path: Path) -> None:
    write_edf(tmp_path / "edf/torch.toml", "")
    _, plan, findings = make(HEAD + 'environment = "torch"\n')
    assert findings == []
    assert planned(plan).files == (f"{tmp_path}/edf/torch.toml",)


def test_the_python_of_the_host_is_not_put_in_front_of_the_path_inside(make: Make, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    write_edf(tmp_path / "job/env.toml", "")
    _, plan, findings = make('name = "a"\nrun = "only-in-the-image"\nenvironment = "env.toml"\n')
    assert plan.step.tasks.path_prepend == ()
    assert "no-command" not in [finding.rule for finding in findings]


def test_an_empty_environment_is_none(make: Make) -> None:
    assert make(HEAD + 'environment = ""\n')[1].step.environment is None


def test_what_is_wrong_with_an_edf_is_a_finding_with_its_line(make: Make, tmp_path: Path) -> None:
    write_edf(tmp_path / "job/env.toml", '[env]\nA = "1"\nB = "${NOT_THERE}"\n')
    _, plan, findings = make(HEAD + 'environment = "env.toml"\n')
    found = only(findings, "undefined-variable")
    assert (found.severity, found.file, found.line) == ("error", f"{tmp_path}/job/env.toml", 3)
    assert plan.step.environment is None


def test_a_store_that_is_a_relative_path_is_a_finding_at_the_job(make: Make, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("EDF_IMAGESTORE", "images")
    write_edf(tmp_path / "job/env.toml", "")
    found = only(make(HEAD + 'environment = "env.toml"\n')[2], "image_store")
    assert (found.severity, found.given) == ("error", "images")


def test_an_edf_that_is_not_there_is_a_finding_at_the_job(make: Make, tmp_path: Path) -> None:
    found = only(make(HEAD + 'environment = "envv"\n')[2], "no-such-edf")
    assert (found.file, found.line, found.given) == (f"{tmp_path}/job/cordee.toml", 3, "envv")


def test_an_image_that_is_not_there_is_a_finding_at_the_job(make: Make, tmp_path: Path) -> None:
    write_edf(tmp_path / "job/env.toml", f'image = "{tmp_path}/no.sqsh"\n')
    found = only(make(HEAD + 'environment = "env.toml"\n')[2], "image")
    assert (found.severity, found.file, found.line) == ("error", f"{tmp_path}/job/cordee.toml", 3)
    assert found.given == f"{tmp_path}/no.sqsh"


def test_a_machine_on_which_no_engine_runs_is_told_what_is_missing(make: Make, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(ENGINES, "namespace", f"{__name__}:Unable")
    monkeypatch.delitem(ENGINES, "apptainer")
    write_edf(tmp_path / "job/env.toml", "")
    found = only(make(HEAD + 'environment = "env.toml"\n')[2], "no-engine")
    assert found.text.endswith("namespace: /dev/fuse is not there")
    assert (found.severity, found.next) == ("error", "engine = podman")


class Other(Able):
    """A second engine that this machine can run."""

    name = "apptainer"


def test_another_engine_is_taken_where_the_first_cannot_run(make: Make, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(ENGINES, "namespace", f"{__name__}:Unable")
    write_edf(tmp_path / "job/env.toml", "")
    _, plan, _ = make(HEAD + 'environment = "env.toml"\n')
    assert planned(plan).engine == "apptainer"


def test_a_source_of_a_mount_that_is_not_there_is_an_error_here_and_a_warning_for_nodes(
    make: Make, tmp_path: Path
) -> None:
    write_edf(tmp_path / "job/env.toml", 'mounts = ["/not/there:/data"]\n')
    found = only(make(HEAD + 'environment = "env.toml"\n')[2], "no-mount-source")
    assert (found.severity, found.given) == ("error", "/not/there")


SITE = 'scheduler = "slurm"\nnodes_elsewhere = false\n[partitions.p]\ndefault = true\ncores = 4\n'


def test_under_slurm_the_nodes_answer_for_themselves(site: Make, tmp_path: Path) -> None:
    write_edf(tmp_path / "job/env.toml", 'mounts = ["/not/there:/data"]\n')
    _, plan, findings = site("nodes = 2", SITE + '[environment]\nengine = "podman"\n', 'environment = "env.toml"\n')
    assert planned(plan).engine == "podman"
    assert only(findings, "engine").severity == "info"
    assert only(findings, "no-mount-source").severity == "warn"


def test_a_site_whose_engine_is_an_option_of_srun_gives_it_to_the_agents(site: Make, tmp_path: Path) -> None:
    write_edf(tmp_path / "job/env.toml", 'image = "nvcr.io#nvidia/pytorch:25.01"\n')
    profile = SITE + '[environment]\nengine = "step"\nstep_option = "--container-image={image}"\n'
    _, plan, findings = site("nodes = 2", profile, 'environment = "env.toml"\n')
    assert not [finding for finding in findings if finding.severity == "error"]
    assert only(findings, "no-run-folder").given == f"{tmp_path}/runs/a-1"
    script = batch_script(RunFolder(tmp_path / "runs/a-1"), plan.document())
    assert "'--container-image=nvcr.io#nvidia/pytorch:25.01' --nodes=" in script


PYXIS = (
    "--container-image={image} --container-mounts={mounts} --container-workdir={workdir} --{writable} --{entrypoint}"
)


def test_pyxis_is_given_an_option_for_each_word_and_ranks_get_the_variables(site: Make, tmp_path: Path) -> None:
    mounts = f'mounts = ["{tmp_path}:{tmp_path}", "/a b:/in:ro"]\n'
    write_edf(
        tmp_path / "job/env.toml",
        f'image = "nvcr.io#nvidia/pytorch:25.01"\n{mounts}[env]\nTOKEN = "s3cret word"\nLEVEL = "3"\n',
    )
    profile = SITE + f'[environment]\nengine = "step"\nstep_option = "{PYXIS}"\n'
    _, plan, findings = site("nodes = 2", profile, 'environment = "env.toml"\n[env]\nLEVEL = "4"\n')
    assert not [finding for finding in findings if finding.severity == "error"]
    script = batch_script(RunFolder(tmp_path / "runs/a-1"), plan.document())
    line = next(line for line in script.splitlines() if "--container-image" in line)
    assert [word for word in shlex.split(line.rstrip("\\")) if "container-" in word] == [
        "--container-image=nvcr.io#nvidia/pytorch:25.01",
        f"--container-mounts={tmp_path}:{tmp_path},/a b:/in:ro",
        "--container-writable",
        "--no-container-entrypoint",
    ]
    assert plan.step.tasks.env.items() >= {"LEVEL": "4", "TOKEN": "s3cret word"}.items()
    assert "s3cret" not in script


@pytest.mark.parametrize(
    ("edf", "option", "word"),
    [
        ('devices = ["/dev/fuse"]\n', PYXIS, "devices"),
        ('[annotations]\n"com.hooks.cxi.enabled" = "true"\n', PYXIS, "annotations"),
        ('[env]\nHOME = ""\n', PYXIS, "unset"),
        ('workdir = "/work"\n', "--uenv={image}", "workdir"),
        ("", "--image={picture}", "places that are not known"),
        ("", "--image='{image}", "step_option"),
    ],
)
def test_what_the_site_s_option_cannot_say_is_refused_before_anything_is_submitted(
    site: Make, tmp_path: Path, edf: str, option: str, word: str
) -> None:
    write_edf(tmp_path / "job/env.toml", f'image = "nvcr.io#nvidia/pytorch:25.01"\n{edf}')
    profile = SITE + f'[environment]\nengine = "step"\nstep_option = "{option}"\n'
    found = only(site("nodes = 2", profile, 'environment = "env.toml"\n')[2], "no-engine")
    assert found.severity == "error"
    assert word in found.text


@pytest.mark.parametrize("mounted", [False, True])
def test_a_site_that_enters_by_itself_is_told_which_data_is_not_mounted(
    site: Make, tmp_path: Path, mounted: bool
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/a").touch()
    mounts = f'mounts = ["{tmp_path}:{tmp_path}"]\n' if mounted else ""
    write_edf(tmp_path / "job/env.toml", f'image = "nvcr.io#nvidia/pytorch:25.01"\n{mounts}')
    profile = SITE + '[environment]\nengine = "step"\n'
    rest = f'environment = "env.toml"\n[data.x]\nfrom = "{tmp_path}/store"\n'
    found = [one for one in site("nodes = 2", profile, rest)[2] if one.rule == "data-not-mounted"]
    assert [one.given for one in found] == ([] if mounted else [f"{tmp_path}/store"])
    assert all(f'"{tmp_path}/store:{tmp_path}/store:ro"' in str(one.next) for one in found)


def test_the_engine_step_is_refused_without_slurm(make: Make, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/local.toml").write_text('[environment]\nengine = "step"\n')
    write_edf(tmp_path / "job/env.toml", "")
    found = only(make(HEAD + 'environment = "env.toml"\n')[2], "not-honoured")
    assert (found.given, found.severity) == ("step", "error")


def test_the_run_folder_keeps_the_edfs_as_given_and_what_they_came_to(make: Make, tmp_path: Path) -> None:
    write_edf(tmp_path / "edf/base.toml", '[env]\nA = "1"\n')
    write_edf(tmp_path / "job/env.toml", 'base_environment = "base"\n')
    make(HEAD + 'environment = "env.toml"\n')
    prepared = prepare(str(tmp_path / "job"), "local", {}, tmp_path / "runs")
    folder = create_run(prepared)
    kept = folder.documents / "environment"
    assert sorted(path.name for path in kept.iterdir()) == ["1-base.toml", "2-env.toml"]
    assert (kept / "1-base.toml").read_text() == '[env]\nA = "1"\n'
    assert '"A": "1"' in (folder.documents / "environment.json").read_text()


def test_a_flag_and_a_variable_override_it(make: Make, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        write_edf(tmp_path / f"edf/{name}.toml", "")
    make(HEAD + 'environment = "one"\n[on.local]\nenvironment = "two"\n')
    loaded = load_job(tmp_path / "job")
    assert loaded.job.environment == "two"
    loaded = load_job(tmp_path / "job", environ={"CORDEE_ENVIRONMENT": "three"})
    assert loaded.job.environment == "three"
    loaded = load_job(tmp_path / "job", flags={"environment": "one"})
    plan, _ = make_plan(loaded, run_id="a", run_folder=tmp_path / "runs/a")
    assert planned(plan).files == (f"{tmp_path}/edf/one.toml",)
