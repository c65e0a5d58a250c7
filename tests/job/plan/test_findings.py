"""What is said about a plan before it runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cordee.core.findings import Finding
from cordee.runs.plan import Checkpoints
from cordee.systems.checkpoints.node.owner import RunCheckpoints

from .conftest import HEAD, NO_SCAN, Make

NOT_HONOURED = [
    ("[sweep]\nlr = [1, 2]\ngoal = 'min a'\n[steps]\na = { run = 'x' }\n", "steps", 6, ["a"]),
    ("[sweep]\nlr = [1, 2]\ngoal = 'min a'\n[test]\nrun = 'x'\n", "test", 6, "a table"),
]


def _only(findings: list[Finding], rule: str) -> Finding:
    (found,) = [finding for finding in findings if finding.rule == rule]
    return found


def test_a_good_job_has_no_findings(make: Make) -> None:
    assert make(HEAD)[2] == []


@pytest.mark.parametrize(("text", "key", "line", "given"), NOT_HONOURED, ids=[case[1] for case in NOT_HONOURED])
def test_what_this_version_cannot_honour_is_refused_by_name(
    make: Make, tmp_path: Path, text: str, key: str, line: int, given: object
) -> None:
    found = _only(make(HEAD + text)[2], "not-honoured")
    assert found.text == f"this version cannot honour {key} beside sweep"
    assert (found.severity, found.file, found.line) == ("error", str(tmp_path / "job/cordee.toml"), line)
    assert (found.given, found.allowed, found.next) == (
        given,
        f"{key} or sweep",
        "remove one of them: a job of its own for the sweep",
    )


def test_srun_is_refused_on_one_machine(make: Make) -> None:
    found = _only(make(HEAD + 'launch = "srun"\n')[2], "not-honoured")
    assert (found.severity, found.line, found.given, found.allowed) == ("error", 3, "srun", '"fork"')
    assert "[on.local]" in str(found.next)


def test_a_pool_whose_machines_share_nothing_takes_one_node(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/pool.toml").write_text('scheduler = "htcondor"\n')
    monkeypatch.setenv("CORDEE_ON", "pool")
    _, plan, findings = make(HEAD + "[need]\nnodes = 2\n[checkpoint]\npath = '/shared/ck'\n")
    assert (plan.backend, plan.cluster) == ("htcondor", "pool")
    found = _only(findings, "too-many-nodes")
    assert (found.severity, found.line, found.given, found.allowed) == ("error", 4, 2, "1")
    assert "gpus_per_node" in str(found.next)
    place = _only(findings, "checkpoint-place")
    assert (place.severity, place.line, place.given) == ("error", 6, "/shared/ck")


def test_a_run_that_travels_has_its_code_and_checkpoints_with_it(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clusters").mkdir()
    profile = 'scheduler = "htcondor"\n[htcondor]\nrequirements = "HasGpus"\nattributes = { WantLab = true }\n'
    profile += '[classes.short]\nmax_time = "1h"\nattributes = { Length = "short" }\n[classes.long]\nmax_time = "9h"\n'
    (tmp_path / "clusters/pool.toml").write_text(profile)
    monkeypatch.setenv("CORDEE_ON", "pool")
    _, plan, _ = make(HEAD + "[need]\ntime = '30min'\ndisk = '3GB'\n[checkpoint]\npath = 'ck'\n")
    step = plan.step
    assert plan.workdir == f"{plan.folder}/code"
    assert (step.checkpoint.path, step.checkpoint.own_folder) == (f"{plan.folder}/checkpoints", True)
    assert step.checkpoint.seen_as == "ck"
    assert step.request.disk_bytes == 3_000_000_000
    assert step.request.scheduler.attributes == {"WantLab": True, "Length": "short"}
    assert (step.request.scheduler.requirements, step.segment.limit_s) == ("HasGpus", 1800.0)


def test_what_only_a_scheduler_understands_is_left_out_and_told(make: Make) -> None:
    findings = make(HEAD + "[need]\naccount = 'a'\nqos = 'q'\n[slurm]\noptions = ['--x']\n")[2]
    told = [(finding.severity, finding.line, finding.text.split()[0], finding.given) for finding in findings]
    assert told == [
        ("info", 4, "need.account", "a"),
        ("info", 5, "need.qos", "q"),
        ("info", 7, "slurm.options", ["--x"]),
    ]


def test_a_missing_script_names_the_nearest(make: Make) -> None:
    found = _only(make('name = "a"\nrun = "python trian.py"\n')[2], "no-script")
    assert (found.severity, found.line, found.given) == ("error", 2, "trian.py")
    assert (found.allowed, found.next) == (["train.py"], "did you mean train.py?")


def test_a_script_that_is_a_dangling_link_is_told(make: Make, tmp_path: Path) -> None:
    os.symlink("nowhere.py", tmp_path / "job/link.py")
    found = _only(make('name = "a"\nrun = "python link.py"\n')[2], "no-script")
    assert found.text == "link.py is a link that leads nowhere"


def test_a_folder_with_main_is_a_script(make: Make, tmp_path: Path) -> None:
    (tmp_path / "job/package").mkdir()
    assert _only(make('name = "a"\nrun = "python package"\n')[2], "no-script").given == "package"
    (tmp_path / "job/package/__main__.py").touch()
    assert not [finding for finding in make('name = "a"\nrun = "python package"\n')[2] if finding.rule == "no-script"]


@pytest.mark.parametrize(
    ("run", "text", "what"),
    [
        (
            "no-such-command-x",
            "the command no-such-command-x is not on PATH",
            "install no-such-command-x, or give its path",
        ),
        ("train.py", "the command train.py is not on PATH", "write ./train.py: the job's folder is not on PATH"),
        ("./train.py", "./train.py is not executable", "chmod +x ./train.py, or put its interpreter in front of it"),
        ("./tarin.py", "there is no file ./tarin.py", "did you mean train.py?"),
        ("./zzz", "there is no file ./zzz", "correct the path"),
        ("/tmp", "/tmp is a folder", "name the command in it"),
    ],
)
def test_a_command_that_cannot_start_is_an_error(make: Make, run: str, text: str, what: str) -> None:
    found = _only(make(f'name = "a"\nrun = "{run}"\n')[2], "no-command")
    assert (found.severity, found.line, found.given) == ("error", 2, run)
    assert (found.text, found.next) == (text, what)
    assert found.allowed


def test_a_command_that_set_up_may_bring_is_only_a_warning(make: Make) -> None:
    found = _only(make('name = "a"\nrun = "no-such-command-x"\nsetup = "module load x"\n')[2], "no-command")
    assert (found.severity, found.next) == ("warn", "nothing, if a line of `setup` brings it")


def test_a_misspelt_command_names_the_nearest(make: Make, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/traintool").touch(mode=0o755)
    text = f'name = "a"\nrun = "trainttol"\nenv = {{ PATH = "{tmp_path}/bin" }}\n'
    assert _only(make(text)[2], "no-command").next == "did you mean traintool?"


def test_shell_syntax_in_a_command_is_told_with_what_to_write(make: Make) -> None:
    found = _only(make('name = "a"\nrun = "python train.py | tee log"\n')[2], "shell-syntax")
    assert (found.severity, found.line, found.given) == ("warn", 2, "|")
    assert found.next == 'run = ["bash", "-c", "python train.py | tee log"], or quote | if it is meant'


def test_a_variable_in_front_of_a_command_belongs_under_env(make: Make) -> None:
    findings = make('name = "a"\nrun = "SEED=1 python train.py"\n')[2]
    found = _only(findings, "shell-syntax")
    assert (found.given, found.next) == ("SEED=1", 'remove it and add [env] SEED = "1"')
    assert found.severity == "warn"


def test_an_undeclared_name_is_told(make: Make) -> None:
    found = _only(
        make('name = "a"\nrun = "python train.py --lr {lr}"\n[sweep]\nlrr = [1]\ngoal = "min a"\n')[2],
        "undeclared-name",
    )
    assert (found.severity, found.line, found.given) == ("info", 2, "{lr}")
    assert (found.allowed, found.next) == (["lrr", "number"], "did you mean {lrr}?")


@pytest.mark.parametrize("table", ['[sweep]\nlr = [1]\ngoal = "min a"\n', '[farm]\nfile = "train.py"\n'])
def test_the_number_of_a_task_is_a_name_that_is_filled_in(make: Make, table: str) -> None:
    name = "lr" if "sweep" in table else "line"
    findings = make(f'name = "a"\nrun = "python train.py {{{name}}} {{number}}"\n{table}')[2]
    assert "undeclared-name" not in [finding.rule for finding in findings]
    alone = make(HEAD.replace("train.py", "train.py {number}"))[2]
    assert _only(alone, "undeclared-name").given == "{number}"


@pytest.mark.parametrize(
    ("run", "given", "what"),
    [
        ("torchrun --standalone train.py", "--standalone", "remove --standalone"),
        ("accelerate launch train.py", "accelerate", "run the script itself"),
        ("mpirun -n 4 train", "mpirun", 'launch = "srun"'),
    ],
)
def test_a_launcher_that_would_start_a_world_on_each_node_is_told(
    make: Make, tmp_path: Path, run: str, given: str, what: str
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("torchrun", "accelerate", "mpirun"):
        (tmp_path / "bin" / name).touch(mode=0o755)
    text = f'name = "a"\nrun = "{run}"\nenv = {{ PATH = "{tmp_path}/bin" }}\n[need]\nnodes = 2\n'
    found = _only(make(text)[2], "launcher-alone")
    assert (found.severity, found.line, found.given) == ("warn", 2, given)
    assert "2 in all" in found.text
    assert what in str(found.next)
    for better in (text.replace("nodes = 2", "nodes = 1"), text.replace(run, "torchrun --nproc-per-node=2 train.py")):
        assert not [finding for finding in make(better)[2] if finding.rule == "launcher-alone"]


def test_too_many_nodes_for_one_machine_are_refused(make: Make) -> None:
    found = _only(make(HEAD + "[need]\nnodes = 64\nspare_nodes = 1\n", cores=100)[2], "too-many-nodes")
    assert (found.severity, found.line, found.given, found.allowed) == ("error", 4, 65, "at most 64")
    assert found.next == "add [on.local] need = { nodes = 2 }"
    assert not make(HEAD + "[need]\nnodes = 64\n", cores=100)[2]


def test_gpus_that_are_not_there_are_refused(make: Make) -> None:
    text = HEAD + "[need]\nnodes = 2\ngpus_per_node = 4\n"
    found = _only(make(text)[2], "no-gpus")
    assert (found.severity, found.line, found.given) == ("error", 5, 4)
    assert found.text == "the job asks for 8 GPUs and this machine has none"
    assert (found.allowed, found.next) == ("at most 0 per node", "add [on.local] need = { gpus_per_node = 0 }")
    assert not make(text + NO_SCAN, gpus=8)[2]


def test_more_memory_than_there_is_is_refused(make: Make) -> None:
    found = _only(make(HEAD + "[need]\nnodes = 2\nmemory = '6GB'\n")[2], "no-memory")
    assert (found.severity, found.line, found.given, found.allowed) == ("error", 5, 6 * 10**9, "at most 5 GB per node")
    assert "[on.local]" in str(found.next)


def test_more_ranks_than_cores_are_a_warning(make: Make) -> None:
    found = _only(make(HEAD + "[need]\nnodes = 2\ncpus_per_rank = 5\n")[2], "oversubscribed")
    assert (found.severity, found.line, found.given, found.allowed) == ("warn", 5, 10, "at most 8")
    assert found.next


@pytest.mark.parametrize(
    ("script", "table", "what"),
    [
        ("", "", 'resume = "--resume {checkpoint}"'),
        ("import argparse\nargparse.ArgumentParser().add_argument('--ckpt-path')\n", "", "--ckpt-path {checkpoint}"),
        ("", "[checkpoint]\npattern = 's-*'\n", "add resume = "),
        ("broken (", "", "cordee.checkpointer"),
    ],
)  # fmt: skip
def test_a_restart_from_zero_is_said_plainly(make: Make, tmp_path: Path, script: str, table: str, what: str) -> None:
    (tmp_path / "job/train.py").write_text(script)
    found = _only(make(HEAD + table)[2], "restart-from-zero")
    assert (found.severity, found.file) == ("warn", str(tmp_path / "job/cordee.toml"))
    assert found.text == "no resume command is configured: a restart starts training from scratch"
    assert what in str(found.next)
    assert found.given


def earlier_run(folder: Path, job: Path, script: str = "train.py") -> None:
    folder.mkdir(parents=True)
    plan = {"job_folder": str(job), "steps": [{"tasks": {"argv": ["python", script, "--lr", "1"]}}]}
    (folder / "plan.json").write_text(json.dumps(plan))


def test_a_restart_from_zero_is_warned_of_at_the_first_run_of_a_folder_alone(make: Make, tmp_path: Path) -> None:
    (tmp_path / "job/train.py").write_text("")
    earlier_run(tmp_path / "runs/a-20261127T101831Z-wqgb", tmp_path / "elsewhere")
    assert _only(make(HEAD)[2], "restart-from-zero").severity == "warn"
    earlier_run(tmp_path / "runs/b-20261127T101832Z-wqgb", tmp_path / "job")
    assert _only(make(HEAD)[2], "restart-from-zero").severity == "info"
    assert (
        _only(make(HEAD + "[checkpoint]\npath = 'c'\nbegin = 'existing'\n")[2], "restart-from-zero").severity == "error"
    )


@pytest.mark.parametrize(
    ("report", "script", "told"),
    [
        ({"resumed_by_itself": True}, "train.py", 0),
        ({"resumed_by_itself": True}, "other.py", 1),
        ({"resumed_by_itself": 1}, "train.py", 1),
        ([], "train.py", 1),
    ],
)
def test_a_script_that_was_seen_to_continue_by_itself_is_not_told_that_it_begins_at_zero(
    make: Make, tmp_path: Path, report: object, script: str, told: int
) -> None:
    (tmp_path / "job/train.py").write_text("")
    folder = tmp_path / "runs/a-20261127T101831Z-wqgb"
    earlier_run(folder, tmp_path / "job", script)
    (folder / "report").mkdir()
    (folder / "report/report.json").write_text(json.dumps(report))
    assert [finding.rule for finding in make(HEAD)[2]] == ["restart-from-zero"] * told


def test_a_script_with_resume_does_not_begin_at_zero(make: Make, tmp_path: Path) -> None:
    (tmp_path / "job/train.py").write_text("")
    assert not make(HEAD + "[checkpoint]\nresume = '--resume {checkpoint}'\n")[2]


def test_resume_in_the_command_itself_is_up_to_the_script(make: Make, tmp_path: Path) -> None:
    (tmp_path / "job/train.py").write_text("")
    findings = make('name = "a"\nrun = "python train.py --resume auto"\n')[2]
    assert [(finding.rule, finding.severity) for finding in findings] == [("resume-in-run", "info")]


def test_a_signal_that_the_script_does_not_handle_is_told(make: Make, tmp_path: Path) -> None:
    text = HEAD + "[checkpoint]\nsignal = 'USR1'\n"
    found = _only(make(text)[2], "unhandled-signal")
    assert (found.severity, found.line, found.given) == ("warn", 4, "USR1")
    (tmp_path / "job/train.py").write_text(
        "import cordee, signal\ncordee.checkpointer()\nsignal.signal(signal.SIGUSR1, print)\n"
    )
    assert not make(text)[2]


def test_a_checkpoint_place_that_is_a_file_is_refused(make: Make, tmp_path: Path) -> None:
    found = _only(make(HEAD + "[checkpoint]\npath = 'train.py/x'\n")[2], "checkpoint-place")
    assert (found.severity, found.line, found.given) == ("error", 4, f"{tmp_path}/job/train.py/x")
    assert (found.allowed, found.next) == ("a folder", "choose another [checkpoint] path")


def test_a_pattern_that_misses_what_is_there_is_told(make: Make, tmp_path: Path) -> None:
    (tmp_path / "job/checkpoints").mkdir()
    (tmp_path / "job/checkpoints/epoch_3.pt").touch()
    text = "[checkpoint]\npath = 'checkpoints'\npattern = 'step-*'\nresume = '{checkpoint}'\n"
    found = _only(make(HEAD + text)[2], "pattern-matches-none")
    assert (found.severity, found.line, found.given) == ("info", 5, "step-*")
    assert "epoch_3.pt" in found.text


def _saved(tmp_path: Path, *names: str) -> Path:
    folder = tmp_path / "job/checkpoints"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("{}")
    return folder


SELF = HEAD + "[checkpoint]\npath = 'checkpoints'\nresume = 'self'\n"


def test_a_script_that_finds_its_checkpoint_by_itself_is_refused_among_another_runs(make: Make, tmp_path: Path) -> None:
    assert not make(SELF)[2]
    folder = _saved(tmp_path, "step-7")
    found = _only(make(SELF)[2], "foreign-checkpoints")
    assert (found.severity, found.line, found.given) == ("error", 4, ["step-7"])
    assert "--begin existing" in str(found.next)
    _, plan, findings = make(SELF + "begin = 'existing'\n")
    assert not [finding for finding in findings if finding.severity != "info"]
    assert plan.step.checkpoint.begin is not None
    assert list(plan.step.checkpoint.begin.checkpoints) == [str(folder / "step-7")]


def test_such_a_script_may_have_a_chain(site: Make, tmp_path: Path) -> None:
    (tmp_path / "job/train.py").write_text("")
    profile = 'scheduler = "slurm"\n[partitions.debug]\ndefault = true\nmax_time = "30min"\n'
    own = "[checkpoint]\nresume = 'self'\n"
    assert _only(site('time = "1h"', profile)[2], "restart-from-zero").severity == "error"
    assert [finding.rule for finding in site('time = "1h"', profile, own)[2] if finding.severity == "error"] == []


@pytest.mark.parametrize("given", ["existing", "../elsewhere", "../elsewhere/step-8"])
def test_a_beginning_is_named_with_its_checkpoint(make: Make, tmp_path: Path, given: str) -> None:
    folder = _saved(tmp_path, "step-7") if given == "existing" else tmp_path / "elsewhere"
    folder.mkdir(exist_ok=True)
    (folder / "step-8").write_text("{}")
    _, plan, findings = make(HEAD + f"[checkpoint]\npath = 'checkpoints'\nbegin = '{given}'\n")
    found = _only(findings, "begins-from")
    assert (found.severity, found.line) == ("info", 5)
    assert os.path.realpath(found.text.split()[4].rstrip(",")) == str(folder / "step-8")
    assert plan.step.checkpoint.begin is not None


@pytest.mark.parametrize(
    ("path", "begin", "text"),
    [
        ("path = 'checkpoints'\n", "existing", "there is no complete checkpoint to begin from"),
        ("path = 'checkpoints'\n", "nowhere/step-9", "there is no complete checkpoint to begin from: nowhere/step-9"),
        ("", "existing", "without [checkpoint] path a run saves in its own folder"),
    ],
)
def test_nothing_to_begin_from_is_refused(make: Make, path: str, begin: str, text: str) -> None:
    found = _only(make(HEAD + f"[checkpoint]\n{path}begin = '{begin}'\n")[2], "no-beginning")
    assert (found.severity, found.given) == ("error", begin)
    assert text in found.text
    assert found.next


def test_a_beginning_that_the_script_cannot_honour_is_refused(make: Make, tmp_path: Path) -> None:
    _saved(tmp_path, "step-7")
    (tmp_path / "job/train.py").write_text("")
    found = _only(make(HEAD + "[checkpoint]\npath = 'checkpoints'\nbegin = 'existing'\n")[2], "restart-from-zero")
    assert found.severity == "error"
    assert found.text.startswith("--begin cannot be honoured: no resume command is configured")


def test_a_run_that_trains_with_the_same_folder_is_named(make: Make, tmp_path: Path) -> None:
    folder = _saved(tmp_path)
    (tmp_path / "job/train.py").write_text("import os\nos.environ['CORDEE_RESUME_FROM']\n")
    policy = Checkpoints(str(folder), pattern="step-*")
    other = RunCheckpoints(policy, "other-1", tmp_path, 60, 10)
    other.begin_training()
    found = _only(make(HEAD + "[checkpoint]\npath = 'checkpoints'\n")[2], "shared-checkpoints")
    assert (found.severity, found.line) == ("warn", 4)
    assert "run other-1 trains with the same checkpoint folder" in found.text
    other.end_training()
    assert not make(HEAD + "[checkpoint]\npath = 'checkpoints'\n")[2]


def test_a_script_that_saves_elsewhere_than_in_the_runs_folder_is_told(make: Make, tmp_path: Path) -> None:
    (tmp_path / "job/train.py").write_text("import torch\ntorch.save({}, 'out/step-1.pt')\n")
    found = _only(make(HEAD + "[checkpoint]\nresume = '--resume {checkpoint}'\n")[2], "checkpoint-folder")
    assert (found.severity, found.line) == ("warn", 3)
    assert "CORDEE_CHECKPOINT_DIR" in str(found.next)


def test_errors_come_first(make: Make) -> None:
    findings = make('name = "a"\nrun = "python x.py | y"\n[need]\naccount = "a"\n')[2]
    assert [finding.severity for finding in findings] == sorted(
        (finding.severity for finding in findings), key=["error", "warn", "info"].index
    )
    assert len({finding.severity for finding in findings}) == 3


def test_nothing_is_written_by_planning(make: Make, tmp_path: Path) -> None:
    make(HEAD + "[checkpoint]\npath = 'saved'\n")
    assert sorted(os.listdir(tmp_path)) == ["job"]
    assert sorted(os.listdir(tmp_path / "job")) == ["cordee.toml", "train.py"]


@pytest.mark.parametrize(
    ("script", "names"),
    [
        (
            "export MASTER_ADDR=$(scontrol show hostnames | head -n1) MASTER_PORT=29500; python train.py",
            "MASTER_ADDR, MASTER_PORT",
        ),
        ("MASTER_ADDR=`hostname` python train.py", "MASTER_ADDR"),
        ("RANK=0 python train.py", "RANK"),
        ("RANK=$SLURM_PROCID MASTER_ADDR=${MASTER_ADDR} MY_RANK=1 python train.py --x=$RANK", None),
        ("python train.py", None),
    ],
)
def test_a_command_that_sets_what_every_rank_has_is_named(make: Make, script: str, names: str | None) -> None:
    findings = make(f"name = 'a'\nrun = ['bash', '-c', '{script}']\n")[2]
    assert [finding.given for finding in findings if finding.rule == "own-ranks"] == ([names] if names else [])
