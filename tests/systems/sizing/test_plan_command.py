"""`cordee plan`, and what `cordee check` says of a job's memory."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from cordee.core.errors import UsageError
from cordee.systems.sizing.cli import command
from cordee.systems.sizing.parallelism import Layout
from cordee.systems.sizing.snippets import snippet
from cordee.systems.sizing.workload import Workload

MODEL = "[model]\nlayers = 32\nwidth = 4096\nheads = 32\nffn = 11008\nvocabulary = 32000\n"
PROFILE = """
scheduler = "slurm"
[partitions.gpu]
default = true
nodes = 8
gpus = 4
gpu_model = "a100"
[gpu.a100]
memory = "40GB"
tflops_bf16 = 312
"""
KEYS = {"parameters", "gradients", "optimizer", "activations", "logits", "buffers", "other"}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of Llama-2-7B's sizes, and no cluster but this machine."""
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    (tmp_path / "llama.toml").write_text(MODEL)
    return tmp_path / "llama.toml"


def test_the_document_has_what_the_design_promises(model):
    done = CliRunner().invoke(command, [str(model), "--gpu", "h100", "--gpus", "8", "--json"])
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert set(document["parts"]) == KEYS
    assert document["peak_bytes"] == pytest.approx(sum(document["parts"].values()), rel=1e-6)
    low, high = document["interval_bytes"]
    assert low < document["peak_bytes"] < high
    assert document["method"] == "formula"
    for layout in document["layouts"]:
        assert {"dp", "fsdp", "tp", "pp", "ep", "cp", "gpus", "peak_bytes", "step_s", "fits", "reason"} <= set(layout)
        assert layout["dp"] * layout["fsdp"] * layout["tp"] * layout["pp"] * layout["cp"] == layout["gpus"]


def test_every_command_that_answers_a_question_on_the_page_of_plans_does(model):
    page = Path(__file__).parents[3] / "docs" / "plan.md"
    asked = list(dict.fromkeys(re.findall(r"`cordee plan CONFIG ([^`]*)`", page.read_text())))
    assert len(asked) > 15
    ended = {}
    for words in asked:
        done = CliRunner().invoke(command, [str(model), *shlex.split(words)])
        ended[words] = done.exit_code if re.search(r"^peak .* of each GPU|^def parallel", done.output, re.M) else done
    assert {words: code for words, code in ended.items() if code != 0} == {"--gpu h100_80gb": 1}


def test_what_does_not_fit_has_exit_code_1_and_says_what_does(model):
    done = CliRunner().invoke(command, [str(model), "--gpu", "l4", "--json"])
    document = json.loads(done.stdout)
    assert (done.exit_code, document["fits"]) == (1, False)
    assert document["smallest"]["fits"]
    assert document["smallest"]["peak_bytes"] <= document["device"]["memory_bytes"]
    assert [change for change in document["changes"] if change["fits"]]


@pytest.mark.parametrize(
    ("gpu", "gib", "others"),
    [
        ("h100", 80, {"64", "94", "96"}),
        ("NVIDIA H100 NVL", 94, set()),
        ("NVIDIA H100 80GB HBM3", 80, set()),
        ("h100_64gb", 64, set()),
        ("a100", 40, {"64", "80"}),
        ("v100", 16, {"32"}),
        ("NVIDIA GH200 480GB", 96, {"141"}),  # 480 GB are those of its processor
        ("NVIDIA L40S", 44.9, set()),  # of 48 GiB, of which ECC takes its part
        ("Tesla T4", 14.75, set()),
    ],
)
def test_a_gpu_is_taken_for_the_common_one_of_its_name_and_the_others_are_told(model, gpu, gib, others):
    done = CliRunner().invoke(command, [str(model), "--gpu", gpu, "--gpus", "8", "--json"])
    document = json.loads(done.stdout)
    assert 0.98 * gib <= document["device"]["memory_bytes"] / (1 << 30) <= gib
    told = [one for one in document["findings"] if one["rule"] == "plan-gpu-size"]
    assert {size for one in told for size in re.findall(r"\d+", one["text"].partition("have")[2])} == others


@pytest.mark.parametrize("layout", ["tp=16", "fsdp=8,tp=2", "dp=16", "pp=16", "tp=2", "fsdp=4"])
def test_a_layout_for_more_or_fewer_gpus_than_there_are_is_refused_with_both_numbers(model, layout):
    done = CliRunner().invoke(command, [str(model), "--gpu", "h100", "--gpus", "8", "--layout", layout])
    count = math.prod(map(int, re.findall(r"\d+", layout)))
    assert isinstance(done.exception, UsageError)
    assert f"for {count} GPUs, and there are 8" in str(done.exception)
    offered = re.search(r"--layout (\S+)", str(done.exception.next))
    for words in ([[8, offered[1]]] if offered else []) + [[count, layout]]:
        gpus, given = map(str, words)
        again = CliRunner().invoke(command, [str(model), "--gpu", "h100", "--json", "--gpus", gpus, "--layout", given])
        assert json.loads(again.stdout)["layouts"][0]["gpus"] == int(gpus)


def test_a_layout_of_a_job_has_the_job_s_gpus(model, tmp_path):
    (tmp_path / "cordee.toml").write_text(
        'name = "j"\nrun = ["true"]\n[need]\ngpus_per_node = 4\nnodes = 2\n[plan]\nmodel = "llama.toml"\nstrategy = "hsdp"\n'
    )
    words = [str(tmp_path / "cordee.toml"), "--gpu", "h100", "--json"]
    refused = CliRunner().invoke(command, [*words, "--layout", "fsdp=16"])
    assert "for 16 GPUs, and there are 8" in str(refused.exception)
    for more, peak in ((["--gpus", "16"], "dp=4,fsdp=4"), ([], "dp=2,fsdp=4")):
        seen = json.loads(CliRunner().invoke(command, [*words, *more]).stdout)["peak_bytes"]
        asked = CliRunner().invoke(command, [*words, *more, "--layout", peak])
        assert seen == json.loads(asked.stdout)["peak_bytes"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.json"], "no such target"),
        (["MODEL", "--layout", "tp=5", "--gpu", "h100"], "32 heads cannot be divided"),
        (["MODEL", "--layout", "fsdq=5"], "did you mean fsdp?"),
        (["MODEL", "--layout", "tp=2,tp=4"], "a size is given twice"),
        (["MODEL", "--gpu", "h100", "--gpu-memory", "20"], "no GPU has so little memory"),
        (["MODEL", "--solve", "batch"], "give --gpu"),
        (["MODEL", "--gpu", "warp9"], "nothing is known of this GPU"),
    ],
)
def test_bad_input_says_what_is_wrong(model, arguments, said):
    done = CliRunner().invoke(command, [str(model) if one == "MODEL" else one for one in arguments])
    assert done.exit_code != 0
    assert said in str(done.exception) + done.output


def test_a_function_is_not_run_where_nothing_may_be(tmp_path, model):
    marked = tmp_path / "ran"
    (tmp_path / "m.py").write_text(f"open({str(marked)!r}, 'w')\n")
    done = CliRunner().invoke(command, [f"{tmp_path}/m.py:make", "--no-run"])
    assert "--no-run" in str(done.exception)
    assert not marked.exists()


def test_check_refuses_a_job_that_cannot_fit_and_names_what_does(site, tmp_path):
    (tmp_path / "job").mkdir(exist_ok=True)
    (tmp_path / "job" / "llama.toml").write_text(MODEL)
    _, _, findings = site("gpus_per_node = 4", PROFILE, '[plan]\nmodel = "llama.toml"\n')
    (found,) = [one for one in findings if one.rule == "plan-does-not-fit"]
    assert found.severity == "error"
    assert found.allowed == "at most 40 GB for each GPU"
    assert "FSDP2" in str(found.next)


def test_check_shows_what_a_job_that_fits_needs(site, tmp_path):
    (tmp_path / "job").mkdir(exist_ok=True)
    (tmp_path / "job" / "llama.toml").write_text(MODEL)
    told = '[plan]\nmodel = "llama.toml"\nstrategy = "fsdp"\nsequence = 1024\n'
    _, plan, findings = site("gpus_per_node = 4\nnodes = 2", PROFILE, told)
    (found,) = [one for one in findings if one.rule.startswith("plan-")]
    assert (found.rule, found.severity) == ("plan-memory", "info")
    assert plan.steps[0].systems["sizing"]["layout"] == "FSDP2 8"


def test_check_warns_of_a_node_with_less_memory_than_its_ranks_loaders_and_checkpoints_take(site, tmp_path):
    (tmp_path / "job").mkdir(exist_ok=True)
    (tmp_path / "job" / "llama.toml").write_text(MODEL)
    told = '[plan]\nmodel = "llama.toml"\nstrategy = "fsdp"\nsequence = 1024\n'
    for memory, rules in (("20GB", ["plan-host-memory"]), ("300GB", [])):
        _, _, findings = site(f'gpus_per_node = 4\nnodes = 2\nmemory = "{memory}"', PROFILE, told)
        assert [one.rule for one in findings if one.rule == "plan-host-memory"] == rules


def test_a_job_of_which_nothing_is_known_is_not_spoken_of(site):
    _, plan, findings = site("gpus_per_node = 4", PROFILE)
    assert [one for one in findings if one.rule.startswith("plan-")] == []
    assert "sizing" not in plan.steps[0].systems


@pytest.mark.parametrize("layout", [Layout(fsdp=4), Layout(dp=2, fsdp=4), Layout(dp=4), Layout()])
def test_code_of_fsdp2_compiles_and_layouts_that_change_the_model_have_none(layout):
    compile(snippet("fsdp2", layout, Workload(checkpointing="full")), "snippet", "exec")
    assert snippet("fsdp2", Layout(tp=2), Workload()).startswith("# No code for TP+SP 2")
