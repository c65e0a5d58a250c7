"""The ways in which people start a training in a batch script: each becomes a document that does the same, or is listed."""

from __future__ import annotations

import re
import shlex

import pytest

from cordee.job.init import write_draft
from cordee.job.load import load_job
from cordee.job.plan.compile import make_plan

WORLD = "#SBATCH -N 2 --ntasks-per-node=4 --gpus-per-node=4"
PYTHON = "python train.py"
SHELL = "bash -c 'exec {} \"$@\"{}' bash"
MEGATRON = """export LAUNCHER="python -m torch.distributed.run --nproc_per_node 4 --nnodes $SLURM_NNODES \\
    --rdzv_endpoint $MASTER_ADDR:6000 --rdzv_backend c10d"
CMD="train.py --lr 1"
srun --jobid $SLURM_JOBID bash -c "$LAUNCHER --node_rank \\$SLURM_PROCID $CMD" 2>&1 | tee log.txt"""
KEPT = [  # what stands in the script, what `run` is
    ("srun -l python train.py", PYTHON),
    ("srun --label --unbuffered --kill-on-bad-exit=1 -- python train.py", PYTHON),
    ('srun bash -c "python train.py --rank \\$SLURM_PROCID"', SHELL.format("python train.py --rank $RANK", "")),
    ("srun bash -c 'export RANK=$SLURM_PROCID; exec python train.py'", PYTHON),
    ("srun bash -e -c 'source env/bin/activate && python train.py'", None),
    ("srun bash -lc 'cd /x; python train.py'", "bash -lc 'cd /x; python train.py'"),
    ('FLAGS="--cpu-bind=cores --label"\nsrun $FLAGS python train.py', PYTHON),
    ('ARGS=(--label --wait=60)\nsrun "${ARGS[@]}" python train.py', PYTHON),
    ("srun $OPTIONS python train.py", PYTHON),
    ("srun $PYTHON train.py", SHELL.format("$PYTHON train.py", "")),
    ("srun $(which python) train.py", SHELL.format("$(which python) train.py", "")),
    ("srun --jobid=$SLURM_JOBID bash -c 'torchrun --nproc_per_node 4 --node_rank $SLURM_PROCID train.py'", PYTHON),
    (MEGATRON, "python train.py --lr 1"),
    ("srun singularity exec --nv img.sif python train.py", "singularity exec --nv img.sif python train.py"),
    ("srun shifter --image=x python train.py", "shifter --image=x python train.py"),
    ("srun podman-hpc run --gpu img python train.py", "podman-hpc run --gpu img python train.py"),
    ("srun --chdir=sub python train.py", "bash -c 'cd sub && exec python train.py \"$@\"' bash"),
    ("time srun python train.py", PYTHON),
    ("exec srun python train.py", PYTHON),
    ("nohup srun python train.py &\nwait", PYTHON),
    ("timeout 3h srun python train.py", f"timeout 3h {PYTHON}"),
    ("timeout -s USR1 3h srun python train.py || sbatch $0", f"timeout -s USR1 3h {PYTHON}"),
    ("srun taskset -c 0-3 nice -n 5 python train.py", f"taskset -c 0-3 nice -n 5 {PYTHON}"),
    ("PYTHONPATH=$PWD/src:$PYTHONPATH srun python train.py", None),
    ("srun python train.py 2>&1 | tee -a log.txt", PYTHON),
    ("srun python train.py > out 2>&1", PYTHON),
    ("srun bash -c 'python train.py > log_$SLURM_PROCID.txt'", PYTHON),
    ("srun python train.py < list.txt", SHELL.format(PYTHON, " < list.txt")),
    ("srun \\\n  --ntasks=8 \\\n  python \\\n  train.py", PYTHON),
    ("srun --pty python train.py", PYTHON),
    ("srun hostname\nsrun nvidia-smi\nsrun python train.py; echo $?", PYTHON),
    ('CMD="python train.py"\neval "srun $CMD"', PYTHON),
    ('CMD="python train.py --name \'a b\'"\neval "$CMD"', f"{PYTHON} --name 'a b'"),
    ("CMD=\"python train.py --name 'a b'\"\neval $CMD --lr 1", f"{PYTHON} --name 'a b' --lr 1"),
    ('CMD="python train.py --name \'a b\'"\neval "srun $CMD 2>&1 | tee log.txt"', f"{PYTHON} --name 'a b'"),
    (
        'CMD="cd sub && srun python train.py"\neval "$CMD" > log.txt',
        "bash -c 'cd sub && exec python train.py \"$@\"' bash",
    ),
    ('CMD="python train.py --d $A"\neval "$CMD"', SHELL.format("python train.py --d $A", "")),
    (
        'CMD="cd sub && python train.py --lr 0.1 | tee log.txt"\nsrun bash -c "$CMD"',
        "bash -c 'cd sub && python train.py --lr 0.1 | tee log.txt'",
    ),
    (
        'LAUNCH="cd \'a b\'; python train.py"\nsrun bash -c "$LAUNCH --lr 0.1"',
        """bash -c "cd 'a b'; python train.py --lr 0.1\"""",
    ),
    (
        'CMD="python train.py --name \'a b\'"\nsrun bash -c "source env.sh; $CMD"',
        """bash -c "source env.sh; python train.py --name 'a b'\"""",
    ),
    (
        'CMD="cd $A && python train.py"\nsrun bash -c "source env.sh; $CMD --rank \\$SLURM_PROCID"',
        "bash -c 'source env.sh; cd $A && python train.py --rank $RANK'",
    ),
    ('A=$(date)\nsrun bash -c "cd $A; ls | wc; python train.py"', "bash -c 'cd $A; ls | wc; python train.py'"),
    ('eval "$(conda shell.bash hook)"\nsrun python train.py', PYTHON),
    ("NAME='a; $5'\nsrun python train.py --name \"$NAME\"", f"{PYTHON} --name 'a; $5'"),
    ("trap 'kill $PID' USR1\nsrun python train.py &\nPID=$!\nwait $PID", PYTHON),
    ("srun nsys profile -o r python train.py", "nsys profile -o r python train.py"),
    ("deepspeed --hostfile=hosts --num_gpus 4 train.py", PYTHON),
    ("module load a && srun conda run -n e python train.py", "conda run -n e python train.py"),
]
LISTED = [  # what stands in the script, which of it is listed, a part of the reason
    ("srun --pty bash", "srun --pty bash", "cordee shell"),
    ("srun --multi-prog conf", "srun --multi-prog conf", "one run has one program"),
    ("srun python - <<EOF\nprint(1)\nEOF", "srun python - <<EOF", "here-document"),
    ("for i in 1 2; do srun python t.py $i & done; wait", "for i in 1 2; do", "cordee farm"),
    ("while IFS= read -r a; do srun python t.py $a; done < list", "while IFS=", "cordee farm"),
    ("while true; do srun python t.py && break; done", "while true; do", "script of its own"),
    ("if [ -f a ]; then srun python a.py; else srun python b.py; fi", "if [ -f a ]", "script of its own"),
    ("(cd sub && srun python t.py)", "(cd sub", "script of its own"),
    ("run() {\n  srun python t.py\n}\nrun", "run", "script of its own"),
    ('parallel -j 4 "srun python t.py {}" ::: 1 2', "parallel -j 4", "cordee farm"),
    ("seq 4 | xargs -P 4 -I{} srun python t.py {}", "seq 4 | xargs", "cordee farm"),
    ("cat list | srun ./x", "cat list | srun ./x", "joined commands"),
]
OF_KEPT = [
    ("srun -n1 python a.py &\nsrun -n1 python train.py &\nwait", "srun -n1 python a.py", "one run has one command"),
    ("srun --container-image=x --container-mounts=/a:/b python train.py", "--container-image=x", "write an EDF"),
    ("srun --export=NONE,A=1 python train.py", "--export=NONE,A=1", "the environment of the submission"),
    ("srun -p $PART python train.py", "-p $PART", "only the shell knows"),
    ("srun --gres=gpu:1 python train.py", "--gres=gpu:1", "for one step"),
    ("srun python train.py $0", "$0", "write its value"),
    ("srun bash -c 'python train.py > x'", "> x", "cordee logs"),
    ("srun accelerate launch train.py", "accelerate", "stays in `run`"),
]


def converted(body, folder, header=WORLD):
    (folder / "job.sbatch").write_text(f"#!/bin/bash\n{header}\n{body}\n")
    (folder / "train.py").write_text("print(1)\n")
    (folder / "clusters").mkdir()
    (folder / "clusters/centre.toml").write_text('scheduler = "slurm"\n')
    written = write_draft(folder, folder / "job.sbatch")
    environ = {"XDG_CONFIG_HOME": str(folder), "CORDEE_CLUSTERS_PATH": str(folder / "clusters")}
    loaded = load_job(folder, cluster="centre", environ=environ)
    _, findings = make_plan(loaded, run_id="forms-20260101T000000Z-abcd", run_folder=folder / "run")
    assert not [finding for finding in findings if finding.severity == "error" and finding.rule != "no-command"]
    return written, loaded.job


@pytest.mark.parametrize(("body", "run"), KEPT)
def test_a_form_becomes_a_command_that_does_the_same(body, run, tmp_path):
    _, job = converted(body, tmp_path)
    assert (job.need.ranks_per_node, job.need.nodes) == (4, 2) or "deepspeed" in body or "srun" not in body
    assert not re.search("srun|train.py", " ".join(job.setup))
    assert "srun" not in " ".join(job.run)
    assert run is None or job.run == tuple(shlex.split(run))


@pytest.mark.parametrize(("body", "text", "why"), LISTED + OF_KEPT)
def test_what_of_a_form_is_not_carried_over_is_listed(body, text, why, tmp_path):
    written, job = converted(body, tmp_path)
    assert [left for left in written.left if left.text.startswith(text) and why in left.why], written.left
    assert "srun" not in " ".join([*job.run, *job.setup])


@pytest.mark.parametrize("body", [body for body, _, _ in LISTED])
def test_what_is_listed_is_no_set_up_line_on_one_node_either(body, tmp_path):
    written, job = converted(body, tmp_path, "#SBATCH -N 1")
    assert (job.setup, bool(written.left)) == ((), True)


@pytest.mark.parametrize(
    ("header", "step", "keys"),
    [
        ("", "-p gpu --gres=gpu:8 -N 2 --ntasks-per-node=8 -t 60", ("gpu", 8, 2, 8, 3600)),
        ("#SBATCH -p cpu -t 10 -N 2 --gpus-per-node=2", "-p gpu --gres=gpu:8 -t 60", ("cpu", 2, 2, 1, 600)),
        ("#SBATCH -N 2 --ntasks-per-node=4 --gpus-per-node=1", "-n1", (None, 1, 1, "gpu", None)),
    ],
)
def test_options_of_srun_say_what_those_of_sbatch_do_not(header, step, keys, tmp_path):
    _, job = converted(f"srun {step} python train.py", tmp_path, header)
    need = job.need
    assert (need.partition, need.gpus_per_node, need.nodes, need.ranks_per_node, need.time) == keys


def test_a_text_that_evaluates_itself_ends(tmp_path):
    _, job = converted('CMD=\'eval "$CMD"; python train.py\'\neval "$CMD"', tmp_path)
    assert job.run == ("python", "train.py")


def test_variables_that_srun_exports_are_kept(tmp_path):
    _, job = converted("srun --export=ALL,NCCL_DEBUG=INFO python train.py", tmp_path)
    assert dict(job.env) == {"NCCL_DEBUG": "INFO"}
