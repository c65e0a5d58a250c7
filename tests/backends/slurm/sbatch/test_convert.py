"""An sbatch script becomes a document that does the same, and what it cannot say is listed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cordee.backends.job_scripts.body import SETS, SEVERAL, VETTED
from cordee.backends.job_scripts.render import render_conversion
from cordee.backends.job_scripts.text import LARGEST_BYTES
from cordee.backends.slurm.sbatch.convert import convert, read_text
from cordee.core.errors import DocumentError
from cordee.job.document import Job
from cordee.job.init import write_draft
from cordee.job.load import load_job
from cordee.systems.environments.examine import plan_environment

AS_BY_HAND = "env -u RANK -u LOCAL_RANK -u WORLD_SIZE -u LOCAL_WORLD_SIZE"
SHELL_END = ' "$@"'
EXPECTED = {  # run (of a shell: what it becomes), launch, ranks per node, cores per rank, nodes
    "accelerate-plain.sbatch": (
        "exec accelerate launch --num_machines 2 --num_processes 8 --machine_rank $GROUP_RANK --main_process_ip "
        "$MASTER_ADDR --main_process_port 29501 train.py --bs 8",
        ("fork", 1, None, 2),
    ),
    "accelerate.slurm": (
        "exec accelerate launch --config_file zero3.yaml --num_processes 32 --num_machines 4 --machine_rank $RANK "
        "--main_process_ip $MASTER_ADDR --main_process_port 29500 sft.py --model big --bf16",
        ("fork", 1, 96, 4),
    ),
    "alps-edf.sbatch": (
        "exec python pretrain.py --layers 32 --hidden 4096 --save $SCRATCH/ckpt",
        ("fork", 4, 72, 16),
    ),
    "array.sbatch": (
        "exec python train.py --lr $LR --seed $SLURM_ARRAY_TASK_ID --out $OUT",
        ("fork", None, 2, 1),
    ),
    "campus-torchrun.sh": (
        'ulimit -n 65536 && exec python train.py --lr 0.1 --data "$HOME/data set"',
        ("fork", 4, 4, 1),
    ),
    "control-flow.sbatch": (None, ("fork", 1, None, 1)),
    "deepspeed.sh": ("python train.py --deepspeed ds.json", ("fork", 8, 12, 1)),
    "horovod.job": ("python train_hvd.py", ("srun", 4, 4, 2)),
    "jean-zay.slurm": ("python -u script.py --epochs 3 --name 'first try'", ("fork", 4, 10, 2)),
    "juwels.sbatch": ("env -u CUDA_VISIBLE_DEVICES python finetune.py --batch-size 64", ("fork", "gpu", 24, 2)),
    "lumi.sbatch": (
        "singularity exec -B /scratch,/project /appl/local/containers/pytorch-2.5.sif bash -c "
        "'$WITH_CONDA; export RANK=$SLURM_PROCID; python train.py --out $SLURM_JOB_ID'",
        ("fork", 8, 7, 2),
    ),
    "mpi-solver.slurm": ("umask 0022 && exec ./solver -i input.nml", ("srun", 64, None, 8)),
    "perlmutter.slurm": ("python train.py --config bench --yaml ./config/unet.yaml", ("fork", 4, 32, 4)),
    "pyxis.sbatch": ("python /workspace/train.py --data-path /data", ("fork", 8, None, 2)),
    "requeue.sbatch": ("python train.py --resume latest", ("fork", 2, None, 1)),
    "several.sbatch": ("python train.py", ("fork", 1, None, 2)),
    "spellings.sbatch": ("python -m trainer.main --config conf/a.toml", ("fork", 2, 4, 4)),
    "tmpdir.sh": ("exec python train.py --data $SLURM_TMPDIR/data", ("fork", None, 8, 1)),
}


def of(body: str, header: str = "#SBATCH -N 2 --ntasks-per-node=4 --gpus-per-node=4") -> object:
    return convert(f"#!/bin/bash\n{header}\n{body}\n")


def command(run):
    return run[2].removesuffix(SHELL_END) if isinstance(run, list) and run[0] == "bash" else run


def test_every_script_of_a_centre_becomes_what_is_expected(script):
    found = convert(read_text(script))
    need = found.need
    facts = (found.launch, need.get("ranks_per_node"), need.get("cpus_per_rank"), need["nodes"])
    assert (command(found.run), facts) == EXPECTED[script.name]


def test_every_generated_document_loads_and_keeps_the_command(script, tmp_path):
    written = write_draft(tmp_path, script)
    job = load_job(written.path, environ={"XDG_CONFIG_HOME": str(tmp_path)}).job
    found = convert(read_text(script))
    assert found.run is None or job.run == (tuple(found.run) if isinstance(found.run, list) else job.run)
    assert dict(job.env) == found.env
    assert list(job.setup) == found.setup
    assert list(job.slurm.options) == found.options
    assert job.slurm.mpi == found.mpi
    assert job.environment == found.environment
    text = written.path.read_text()
    assert all(f"{left.line:>4}  " in text for left in written.left)


@pytest.mark.parametrize(
    ("body", "launch", "mpi"),
    [
        ("srun --mpi=pmix ./solver", "srun", "pmix"),
        ("srun --mpi pmi2 python -m mpi4py train.py", "srun", "pmi2"),
        ("srun --mpi=none ./solver", "fork", None),
        ("srun ./solver", "srun", None),
        ("srun --mpi=$KIND ./solver", "srun", None),
        ("mpirun ./solver", "srun", None),
        ("srun --mpi=pmix torchrun --nproc-per-node=4 train.py", "fork", None),
    ],
)
def test_sruns_kind_of_mpi_is_carried_over(body, launch, mpi):
    found = of(body)
    assert (found.launch, found.mpi) == (launch, mpi)


@pytest.mark.parametrize(
    ("header", "option", "environment"),
    [
        ("", "--environment=./env/llm.toml", "./env/llm.toml"),
        ("", "--environment torch", "torch"),
        ("#SBATCH --environment=of-the-job", "", "of-the-job"),
        ("#SBATCH --environment=of-the-job", "--environment='of the step.toml'", "of the step.toml"),
        ("", "--environment=$EDF", "${EDF}"),
        ("", "--environment=$HOME/edf/llm.toml", "${HOME}/edf/llm.toml"),
        ("", '--environment="${SCRATCH}/llm.toml"', "${SCRATCH}/llm.toml"),
        ("", "--environment=${SCRATCH:-/tmp}/llm.toml", "${SCRATCH:-/tmp}/llm.toml"),
        ("", "--environment=~/llm.toml", "${HOME}/llm.toml"),
        ("", '--environment="$(pwd)/llm.toml"', "./llm.toml"),
        ("", "--environment=$SLURM_SUBMIT_DIR/env/llm.toml", "./env/llm.toml"),
        ("", "--environment=$(realpath env/llm.toml)", "./env/llm.toml"),
        ("HERE=$SCRATCH/edf", "--environment=${HERE}/llm.toml", "${SCRATCH}/edf/llm.toml"),
        ("HERE=llm", "--environment=$HERE", "llm"),
        ("HERE=$(newest)", "--environment=$HERE", None),
        ("", "--environment=$SLURM_JOB_NAME.$SLURM_JOB_ID", None),
        ("", "--environment=$(newest)", None),
        ("", "", None),
    ],
)
def test_the_environment_of_a_step_or_a_job_is_carried_over(header, option, environment):
    found = convert(f"#!/bin/bash\n{header}\nsrun {option} python train.py\n")
    assert (found.environment, found.run) == (environment, "python train.py")
    assert [left.why for left in found.left if "environment" in left.text][-1:] == (
        []
        if not (header.startswith("#") or option)
        else ["set-up lines run inside it, too" if environment else "give the EDF itself: environment = ..."]
    )


def test_an_environment_of_the_job_that_the_step_overrules_is_named():
    found = convert("#!/bin/bash\n#SBATCH --environment=llm\nexport A=1\nsrun --environment=torch python train.py\n")
    assert found.environment == "torch"
    assert [(left.line, left.text) for left in found.left] == [
        (2, "--environment=llm"),
        (4, "--environment=torch"),
    ]
    assert "everything runs in one environment" in found.left[0].why


@pytest.mark.parametrize("command", ["./start.sh", "myprogram", "for i in 1 2; do srun python t.py; done"])
def test_the_environment_of_a_job_is_kept_whatever_its_commands_are(command):
    assert convert(f"#!/bin/bash\n#SBATCH --environment=llm --nodes=2\n{command}\n").environment == "llm"


def test_a_path_with_variables_is_filled_in_when_the_document_is_used(tmp_path, monkeypatch):
    (tmp_path / "edf").mkdir()
    (tmp_path / "edf/llm.toml").write_text('[env]\nFROM = "llm"\n')
    monkeypatch.setenv("PLACE", str(tmp_path))
    (tmp_path / "train.sbatch").write_text(
        "#!/bin/bash\n#SBATCH --time=1\nsrun --environment=$PLACE/edf/llm.toml python t.py\n"
    )
    loaded = load_job(write_draft(tmp_path).path, environ={})
    planned, _ = plan_environment(loaded, tmp_path / "run")
    assert planned is not None
    assert planned.document["env"] == {"FROM": "llm"}
    monkeypatch.delenv("PLACE")
    planned, findings = plan_environment(loaded, tmp_path / "run")
    assert planned is None
    assert [finding.text for finding in findings] == ["environment uses the variable PLACE, which is not defined"]


ALPS = """srun -ul --environment=./ngc.toml bash -c "
    MASTER_ADDR=\\$(scontrol show hostnames \\$SLURM_JOB_NODELIST | head -n1) \\
    MASTER_PORT=29500 \\
    RANK=\\${SLURM_PROCID} \\
    WORLD_SIZE=\\${SLURM_NTASKS} \\
    DATA=\\$SOMEWHERE \\
    python train.py
"
"""


@pytest.mark.parametrize(
    ("body", "run"),
    [
        (ALPS, ["bash", "-c", 'DATA=$SOMEWHERE python train.py "$@"', "bash"]),
        (
            "srun bash -c 'pip install x; export MASTER_ADDR=$(scontrol show hostnames | head -n1) MASTER_PORT=1; python t.py'",
            "bash -c 'pip install x; python t.py'",
        ),
        (
            "srun bash -c 'pip install x && H=$(scontrol show hostnames $L | head -n1) && torchrun --node_rank=$SLURM_NODEID "
            "--master_addr=$H t.py'",
            "bash -c 'pip install x && torchrun --node_rank=$GROUP_RANK --master_addr=$MASTER_ADDR t.py'",
        ),
    ],
)
def test_a_shell_that_is_kept_does_not_set_what_every_rank_has(body, run):
    found = of(body)
    assert found.run == run
    assert any("MASTER_ADDR" in left.text or "scontrol" in left.text for left in found.left if left.why == SETS)


def test_only_what_every_rank_has_is_taken_out_of_a_kept_shell():
    found = of(
        "srun bash -c 'pip install x\nexport KEEP=1 MASTER_ADDR=$(scontrol show hostnames | head -n1)\n"
        "HERE=$(hostname)\nexport MASTER_PORT=1 # a port\npython t.py --here $HERE'"
    )
    assert found.run == (
        "bash -c 'pip install x\nexport KEEP=1\nHERE=$(hostname)\n: # a port\npython t.py --here $HERE'"
    )
    assert [left.text for left in found.left if left.why == SETS] == [
        "MASTER_ADDR=$(scontrol show hostnames | head -n1)",
        "MASTER_PORT=1",
    ]


def test_what_a_kept_shell_sets_all_the_same_is_listed():
    found = of("srun bash -c 'pip install x; if true; then export RANK=3; fi; python t.py'")
    assert [left.why for left in found.left if left.text == "RANK=..."] == [
        "set by the command itself, over the value that Cordée gives every rank: take it out"
    ]


def test_options_of_containers_beside_an_edf_are_said_by_the_edf():
    found = of(
        "srun --environment=llm --container-workdir=/w --container-writable --container-mounts=/a:/a python t.py"
    )
    assert found.run == ["bash", "-c", 'cd /w && exec python t.py "$@"', "bash"]
    said = {left.text: left.why for left in found.left}
    assert said["--container-writable"] == "the EDF says it: writable = true"
    assert said["--container-mounts=/a:/a"] == "the EDF says it: mounts"


def test_an_option_of_a_step_that_a_job_can_have_is_carried_over_and_another_is_listed():
    found = of("srun --network=no_vni --nodelist=n1 python t.py")
    assert found.options == ["--network=no_vni"]
    assert [left.why for left in found.left] == [
        "an option for one step: ask for it for the whole job, in [slurm] options"
    ]


@pytest.mark.parametrize(
    "command", ["srun $ARGS python t.py", 'srun "${ARGS}" -l python t.py', "srun bash -c 'A=$B python t.py'"]
)
def test_a_variable_in_front_of_a_script_does_not_make_it_an_mpi_program(command):
    found = of(command)
    assert found.launch == "fork"
    assert found.script == "t.py"


def test_the_page_shows_the_document_that_is_written(tmp_path):
    page = (Path(__file__).parents[4] / "docs/from-sbatch.md").read_text()
    script, document = re.findall(r"```(?:bash|toml)\n(.*?)```", page, re.DOTALL)
    (tmp_path / "train.sbatch").write_text(script.partition("\n")[2])
    assert tomllib.loads(write_draft(tmp_path).path.read_text()) == tomllib.loads(document)


def test_the_most_likely_script_is_read_and_the_others_are_named(tmp_path):
    header = "#!/bin/sh\n#SBATCH -N 3\n"
    (tmp_path / "slurm").mkdir()
    for name, body in {
        "a.sh": "echo nothing",
        "b.sbatch": "srun python b.py",
        "slurm/train.sh": "srun python c.py",
        "train.txt": "srun python d.py",
        "plain.sh": None,
    }.items():
        (tmp_path / name).write_text(f"{header}{body}\n" if body else "echo\n")
    (tmp_path / "c.sh").write_bytes(header.encode() + b"\0")
    written = write_draft(tmp_path)
    assert written.source == tmp_path / "slurm/train.sh"
    assert "other job scripts: b.sbatch, a.sh; `cordee init FILE` reads another" in written.notes
    assert load_job(written.path, environ={}).job.run == ("python", "c.py")


def test_a_script_without_options_is_read_when_it_is_named(tmp_path):
    (tmp_path / "a.sh").write_text("#!/bin/sh\nsrun python t.py\n")
    written = write_draft(tmp_path, tmp_path / "a.sh")
    assert "a.sh has no #SBATCH lines: what was given to sbatch by hand is not known" in written.notes


def test_what_cannot_be_carried_over_is_listed_with_its_line():
    text = (
        "#!/bin/bash\n#SBATCH --array=1-3 --dependency=singleton -o x\n"
        "for i in 1 2; do\n srun a\ndone\nif true; then b; fi\nf() { sbatch $0; }\ntrap f USR1\n"
        "sleep 1 &\ncat <<E > x\nsrun ghost\nE\nsrun python train.py $1 | tee log\nsrun python other.py\nrm -r x\n"
    )
    found = convert(text)
    assert found.run[2] == 'exec python train.py $1 "$@"'
    assert [left.line for left in found.left] == [2, 2, 2, 3, 6, 7, 8, 9, 10, 13, 13, 14, 15]


@pytest.mark.parametrize(
    ("body", "run", "ranks"),
    [
        ("python train.py", "python train.py", 1),
        ("srun python train.py", "python train.py", 4),
        ("srun -n 2 -N 2 python train.py", "python train.py", 1),
        ("time srun --mpi=none -l -u ./a.sh 1", "./a.sh 1", 4),
        ("torchrun --nproc_per_node=2 -m pkg.train --x=1", "python -m pkg.train --x=1", 2),
        ("srun python3 -u -m torch.distributed.run --nproc-per-node gpu t.py", "python3 t.py", "gpu"),
        ("srun --ntasks-per-node=1 torchrun --nproc-per-node $SLURM_GPUS_PER_NODE t.py", "python t.py", 4),
        ("python -m torch.distributed.launch --use_env --nproc_per_node 4 t.py", "python t.py", 4),
        ("deepspeed --num_gpus 4 t.py --a", "python t.py --a", 4),
        ("srun apptainer exec --nv a.sif torchrun --nproc-per-node=4 t.py", "apptainer exec --nv a.sif python t.py", 4),
        ("srun bash -c 'export RANK=$SLURM_PROCID; python t.py'", "python t.py", 4),
        ("A=t.py; B=(--x 1)\nsrun python $A ${B[@]}", "python t.py --x 1", 4),
        ('A=t.py\nC="python ${A}"\nC+=" --y"\nsrun $C', "python t.py --y", 4),
        ('O=(--a "x y" --b)\nsrun python t.py "${O[@]}"', 'python t.py --a "x y" --b', 4),
        ('O=(--a "x y" --b)\nsrun bash -c "python t.py ${O[*]} --c"', "python t.py --a x y --b --c", 4),
        ("nohup python train.py > log 2>&1 &\nwait", "python train.py", 1),
        ("mpirun -np 8 --bind-to none ./solver", "./solver", 4),
        (
            "n=($(scontrol show hostnames $SLURM_NODELIST))\nh=${n[0]}\nsrun python t.py --at $h",
            ["bash", "-c", 'exec python t.py --at $MASTER_ADDR "$@"', "bash"],
            4,
        ),
        ("A=1 srun python t.py", "python t.py", 4),
        ("conda run -n e python t.py", "conda run -n e python t.py", 1),
        ("python t.py \\\n  --a \\\n  --b 'c d'", "python t.py --a --b 'c d'", 1),
    ],
)
def test_a_launch_line_becomes_the_command_of_a_rank(body, run, ranks):
    found = of(body)
    assert (found.run, found.need["ranks_per_node"]) == (run, ranks)


@pytest.mark.parametrize(
    ("body", "setup", "env"),
    [
        ("module load a b\nmodule list", ["module load a b"], {}),
        ("export A=1 B='x y'", [], {"A": "1", "B": "x y"}),
        ("export A=$HOME/x", ["export A=$HOME/x"], {}),
        ("export PATH=/a/bin", ["export PATH='/a/bin'"], {}),
        ("A=~/data\nexport B=$A/c", ["export A=~/data", "export B=$A/c"], {}),
        ("D=/data\nexport B=$D/c", [], {"B": "/data/c"}),
        ("export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK", ["export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK"], {}),
        ("export N=$((SLURM_NNODES * 4 + 1))", [], {"N": "9"}),
        ("source env/bin/activate && module load x", ["source env/bin/activate", "module load x"], {}),
        ("module load x || exit 1", ["module load x || exit 1"], {}),
        ("set -e\nset -u", ["set -u"], {}),
        ("export MASTER_PORT=$((10000 + RANDOM))\nexport WORLD_SIZE=8", [], {}),
        ('nodes=( $(scontrol show hostnames "$SLURM_JOB_NODELIST") )\nhead=${nodes[0]}', [], {}),
    ],
)
def test_lines_before_the_command_become_setup_or_variables(body, setup, env):
    found = of(f"{body}\nsrun python train.py")
    assert (found.setup, found.env) == (setup, env)


def test_an_element_of_an_array_is_listed():
    found = of("O=(a b)\nsrun python t.py ${O[1]}")
    assert "write its words into `run`" in found.left[-1].why
    assert found.left[-1].text == "${O[1]}"


def test_cores_of_a_task_are_shared_by_the_ranks_of_its_launcher():
    found = of(
        "export T=$SLURM_CPUS_PER_TASK\nsrun torchrun --nproc-per-node=4 t.py", "#SBATCH -N 2 -c 64 --mem-per-cpu=1G"
    )
    assert found.need["cpus_per_rank"] == 16
    assert found.need["memory"] == "64GiB"
    assert found.env == {"T": "64"}


def test_a_folder_to_start_in_is_kept_for_setup_and_command():
    found = of("source venv/bin/activate\ncd sub\nsrun python train.py", "#SBATCH -D /home/me")
    assert found.setup == ["cd /home/me", "source venv/bin/activate", "cd sub"]
    assert command(found.run) == "cd /home/me && cd sub && exec python train.py"


@pytest.mark.parametrize(
    ("header", "body", "keys"),
    [
        ("#SBATCH --signal=USR1@300", "srun python t.py", {"grace": "5min", "signal": "USR1"}),
        ("#SBATCH --signal=B:USR1@120", "srun python t.py", {"grace": "2min"}),
        ("#SBATCH --signal=USR1", "python t.py", {"grace": "1min"}),
        ("#SBATCH -N 1", "python t.py", {}),
    ],
)
def test_a_signal_before_the_end_is_for_whom_sbatch_sends_it_to(header, body, keys):
    assert of(body, header).checkpoint == keys


def test_a_range_of_nodes_that_the_tasks_need_is_no_range():
    assert "min_nodes" not in of("srun a", "#SBATCH -N 2-4 --ntasks=8 --ntasks-per-node=2").need
    assert of("srun a", "#SBATCH -N 2-4").need["min_nodes"] == 2


@pytest.mark.parametrize(
    ("data", "line", "text"),
    [
        (b"#!/bin/sh\n#SBATCH -N 1\n\0", 3, "NUL"),
        (b"#!/bin/sh\n\xff\xfe", 2, "UTF-8"),
        (b"#" * (LARGEST_BYTES + 1), 1, "too large"),
    ],
)
def test_what_is_no_script_is_refused_with_its_line(tmp_path, data, line, text):
    (tmp_path / "a.sh").write_bytes(data)
    with pytest.raises(DocumentError) as caught:
        write_draft(tmp_path, tmp_path / "a.sh")
    assert text in str(caught.value)
    assert (caught.value.line, caught.value.file) == (line, str(tmp_path / "a.sh"))
    assert caught.value.allowed
    assert caught.value.next


def test_a_script_that_is_not_there_is_told(tmp_path):
    for name in ("none.sh", "."):
        with pytest.raises(DocumentError) as caught:
            write_draft(tmp_path, tmp_path / name)
        assert "--from" in caught.value.next


def test_a_script_from_windows_is_read(tmp_path):
    (tmp_path / "a.sh").write_bytes(b"#!/bin/bash\r\n#SBATCH -N 2\r\nsrun \\\r\n python t.py\r\n")
    found = convert(read_text(tmp_path / "a.sh"))
    assert (found.run, found.need["nodes"]) == ("python t.py", 2)


PIECES = st.sampled_from(
    [
        "#SBATCH",
        "-N ",
        "4",
        "2-9",
        "--mem=",
        "9999999G",
        "-t ",
        "--gres=gpu:",
        "a",
        ":",
        "--signal=",
        "B:USR1@9",
        "-n ",
        "7",
        "srun ",
        "torchrun ",
        "--nproc-per-node=",
        "python ",
        "t.py",
        "bash -c ",
        "'",
        '"',
        "$(",
        ")",
        "${",
        "}",
        "`",
        "\\",
        "\n",
        "\n",
        "\n",
        " ",
        " ",
        ";",
        "&&",
        "",
        "",
        "&",
        "<<E",
        "E",
        "if ",
        "then ",
        "fi",
        "for ",
        "do ",
        "done",
        "case ",
        "esac",
        "{ ",
        "}",
        "export ",
        "A=",
        "$A",
        "${A[@]}",
        "A=(",
        "[[ ",
        "]]",
        "f()",
        "#",
        "=",
        "~",
        "*",
        "$((",
        "))",
        "1*2",
        "|",
        "||",
        "cd ",
        "sbatch $0",
        "mpirun ",
        "-np ",
        "accelerate ",
        "env ",
        "é",
        "\x07",
        "\x7f",
        "--",
        "-",
        "%",
    ]
)


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(st.one_of(st.lists(PIECES, max_size=60).map("".join), st.text(max_size=200)))
def test_any_text_gives_a_document_that_is_valid(text):
    text = ("#!/bin/sh\n" + text).replace("\0", "").encode(errors="ignore").decode()
    found = convert(text)
    toml = render_conversion(found, source="a.sh", name="a", run=found.run or "python t.py", checkpoint=[])
    Job.model_validate(tomllib.loads(toml))
    assert all(1 <= left.line <= text.count("\n") + 2 for left in found.left)


def test_a_deep_or_endless_line_is_read_at_once():
    for text in (
        "$(" * 50_000,
        "(" * 100_000,
        '"' * 99_999,
        "a" * 200_000,
        "{ " * 50_000,
        "`$(" * 30_000,
        "srun " * 40_000,
        "nohup " * 30_000,
    ):
        assert convert("#!/bin/sh\n" + text).run is None or text.startswith("a")


@pytest.mark.parametrize(
    ("vetting", "step", "need", "vet"),
    [
        ("host --nodes 3", "--nodes=3 --ntasks=3", (3, 1), {"protocol": "host"}),
        ("--nodes=3 ./protocol.yaml --deadline 90s", "", (3, 1), {"protocol": "./protocol.yaml", "deadline": "90s"}),
        ("quick", "", (4, None), {"protocol": "quick"}),
        ("quick", "--nodes=2", (2, 2), {"protocol": "quick"}),
        (
            "host --nodes 3",
            '--nodes="$CORDEE_VET_HEALTHY" --ntasks="$CORDEE_VET_HEALTHY"',
            (3, 1),
            {"protocol": "host"},
        ),
        ("$PROTOCOL", "", (4, None), {}),
    ],
)
def test_a_script_that_vets_becomes_a_document_that_does(vetting, step, need, vet):
    body = (
        f"rm -f vet.env\nsrun --kill-on-bad-exit=0 --wait=75 cordee vet {vetting}\nsource ./vet.env || exit 5\n"
        '[ "$CORDEE_VET_VERDICT" != abort ] || exit 4\nif [ "$CORDEE_VET_CODE" = 3 ]; then echo less; fi\n'
        f'srun {step} --exclude="$CORDEE_VET_EXCLUDE" python train.py\n'
    )
    found = of(body, "#SBATCH --nodes=4 --ntasks-per-node=1")
    assert (found.run, found.setup, found.vet) == ("python train.py", [], vet)
    assert (found.need["nodes"], found.need.get("spare_nodes"), found.need["ranks_per_node"]) == (*need, 1)
    assert {3, 5, 6, 7, 8} <= {left.line for left in found.left if left.why == VETTED}


@pytest.mark.parametrize(
    ("maker", "reader"),
    [
        ("python make_env.py > env.sh", "source ./env.sh"),
        ("srun -n1 ./probe | tee env.sh", ". env.sh"),
        ("if true; then echo x >> $PWD/env.sh; fi", "source $SLURM_SUBMIT_DIR/env.sh"),
        ("cat <<EOF > env.sh\nexport A=1\nEOF", "export A=$(cat env.sh)"),
    ],
)
def test_a_set_up_line_that_reads_what_nothing_makes_is_listed(maker, reader):
    found = of(f"{maker}\n{reader}\nmodule load x > env.sh\nsrun python train.py")
    assert found.setup == ["module load x > env.sh"]
    assert ["not carried over" in left.why for left in found.left if left.text.startswith(reader[:6])] == [True]


@pytest.mark.parametrize(
    ("header", "body", "ranks", "command"),
    [
        ("--ntasks=1", "python train.py", None, "python train.py"),
        ("--ntasks=4", "python train.py", None, "python train.py"),
        ("--gpus-per-node=1", "srun python train.py", None, "python train.py"),
        ("--gpus-per-node=4", "python train.py", 1, f"{AS_BY_HAND} python train.py"),
        ("--gpus-per-node=4", "accelerate launch train.py", None, "accelerate launch train.py"),
        ("--ntasks=1", "export RANK=0 WORLD_SIZE=1\npython train.py", 1, "python train.py"),
        ("--gpus-per-node=4", "torchrun --nproc-per-node=1 train.py", 1, "python train.py"),
        ("--ntasks=1", "mpirun ./solver", 1, "./solver"),
    ],
)
def test_one_process_alone_runs_as_by_hand(header, body, ranks, command):
    found = of(body, f"#SBATCH {header}")
    assert (found.run, found.need.get("ranks_per_node")) == (command, ranks)


@pytest.mark.parametrize(
    ("body", "run", "text"),
    [
        ("srun -N 2 ./ocean : -N 1 python surrogate.py", "./ocean", ": -N 1 python surrogate.py"),
        ("mpirun -np 8 ./ocean : -np 2 ./ice", "./ocean", ": -np 2 ./ice"),
        ("srun --multi-prog tasks.conf", None, "srun --multi-prog tasks.conf"),
        ("srun bash -c 'python train.py : x'", "python train.py : x", None),
    ],
)
def test_a_second_program_for_other_tasks_is_listed(body, run, text):
    found = of(body)
    assert found.run == run
    assert [left.text for left in found.left if left.why == SEVERAL] == ([text] if text else [])
