"""`cordee.layout` in processes of their own: named indices, DeviceMesh, Megatron's settings and state, and what is none of these."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cordee.client import megatron
from cordee.wire.channel import ChannelReader, create_channel
from cordee.wire.facts import LayoutFact

MESH = """
import os, sys
folder, how = sys.argv[1:]
if how == "hook":
    os.environ.update(CORDEE_CHANNEL=folder, CORDEE_ADAPTERS="device_mesh", WORLD_SIZE="4")
    from cordee.client.adapters import sitecustomize
    sitecustomize.begin()
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
import cordee

children = []
for rank in range(4):
    pid = os.fork()
    if pid == 0:
        os.environ["CORDEE_CHANNEL"] = f"{folder}/1-{rank}.channel"
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=4)
        init_device_mesh("cpu", (4,), mesh_dim_names=("all",))
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        mesh["tp"], mesh["dp", "tp"]._flatten("dp_tp"), init_device_mesh("cpu", (4, 1))
        if how == "call":
            cordee.layout(mesh)
        dist.barrier()  # a slow rank still makes its last groups
        dist.destroy_process_group()
        os._exit(0)
    children.append(pid)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
"""


@pytest.fixture
def channel(tmp_path):
    path = tmp_path / "1-0.channel"
    create_channel(path)
    return path


def facts_in(channel):
    """Return the facts that a channel holds, which has no event."""
    reader = ChannelReader(channel)
    assert reader.read()[0] == []
    return [fact for _, fact in reader.told()]


def said(program, channel, **more):
    """Run a program and return the facts that it told and what it printed on standard error."""
    env = {**os.environ, "CORDEE_CHANNEL": str(channel), **more}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return facts_in(channel), done.stderr


def test_named_indices_arrive_with_the_sizes_that_were_given(channel):
    facts, words = said("import cordee\ncordee.layout(dp=(3, 8), tp=1)", channel)
    assert facts == [LayoutFact({"dp": 3, "tp": 1}, {"dp": 8}, "call")]
    assert words == ""


def test_the_same_place_is_said_once_and_another_one_again(channel):
    program = "import cordee\nfor step in range(1000): cordee.layout(dp=step // 500)"
    facts, _ = said(program, channel)
    assert [fact.place for fact in facts] == [{"dp": 0}, {"dp": 1}]


def test_outside_a_run_nothing_happens_and_nothing_is_said():
    done = subprocess.run(
        [sys.executable, "-c", "import cordee\ncordee.layout(dp=1)"], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    "call",
    [
        "dp='three'",
        "dp=1.5",
        "dp=True",
        "dp=(1, 2, 3)",
        "dp=float('nan')",
        "",
        "object()",
        "object(), dp=1",
        "**{'d p': 1}",
        "**{'<b>': 1}",
        "**{f'd{n}': 1 for n in range(9)}",
    ],
)
def test_what_is_no_place_warns_and_is_recorded_as_refused_and_never_raises(channel, call):
    (fact,), words = said(f"import cordee\ncordee.layout({call})", channel)
    assert (fact.place, bool(fact.refused)) == ({}, True)
    assert "cordee.layout" in words
    assert "DeviceMesh" in words


def test_integers_of_numpy_are_integers(channel):
    facts, _ = said("import cordee, numpy\ncordee.layout(dp=(numpy.int64(1), numpy.int32(2)))", channel)
    assert facts[0].sizes == {"dp": 2}


@pytest.mark.parametrize("how", ["call", "hook"])
@pytest.mark.usefixtures("real")
def test_a_device_mesh_tells_the_coordinate_of_each_of_four_ranks(tmp_path, how):
    for rank in range(4):
        create_channel(tmp_path / f"1-{rank}.channel")
    done = subprocess.run([sys.executable, "-c", MESH, str(tmp_path), how], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [facts_in(tmp_path / f"1-{rank}.channel")[-1] for rank in range(4)]
    assert [(fact.place["dp"], fact.place["tp"]) for fact in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(fact.sizes["dp"] == 2 and fact.source == "mesh" for fact in found)


def test_megatrons_arguments_place_a_rank_by_its_rank_order(channel):
    program = (
        "import cordee\n"
        "class args: tensor_model_parallel_size, pipeline_model_parallel_size, rank, world_size = 2, 4, 9, 16\n"
        "cordee.layout(args)"
    )
    (fact,), _ = said(program, channel)
    assert (fact.place, fact.source) == ({"tp": 1, "dp": 0, "pp": 2}, "megatron")


def test_megatrons_state_is_asked_for_what_it_knows(channel):
    program = (
        "import cordee\n"
        "def not_made(): raise AssertionError('tensor model parallel group is not initialized')\n"
        "class state:\n"
        "    get_tensor_model_parallel_rank = staticmethod(lambda: 1)\n"
        "    get_tensor_model_parallel_world_size = staticmethod(lambda: 2)\n"
        "    get_data_parallel_rank = staticmethod(lambda: 3)\n"
        "    get_data_parallel_world_size = staticmethod(lambda: 4)\n"
        "    get_pipeline_model_parallel_rank = staticmethod(not_made)\n"
        "    get_context_parallel_rank = staticmethod(lambda: 0)\n"
        "    get_context_parallel_world_size = staticmethod(lambda: 1)\n"
        "cordee.layout(state)"
    )
    assert said(program, channel)[0] == [LayoutFact({"tp": 1, "dp": 3}, {"tp": 2, "dp": 4}, "megatron")]


MEGATRON = """
_RANK = None

def initialize_model_parallel(tensor_model_parallel_size=1):
    global _RANK
    _RANK = 1

def get_tensor_model_parallel_rank():
    assert _RANK is not None, "tensor model parallel group is not initialized"
    return _RANK

def get_tensor_model_parallel_world_size():
    return 2
"""
HOOKED = """
import os
os.environ["CORDEE_ADAPTERS"] = "megatron"
from cordee.client.adapters import sitecustomize
sitecustomize.begin()
import cordee
{before}
from megatron.core import parallel_state
parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
"""


@pytest.mark.parametrize(("before", "tensor"), [("", 1), ("cordee.layout(tp=7)", 7)])
def test_megatrons_groups_are_asked_once_they_are_made_unless_the_script_told_its_place(
    tmp_path, channel, before, tensor
):
    # Megatron-core is not installed here: this is its seam, as megatron/core/parallel_state.py has it.
    package = tmp_path / "packages" / "megatron" / "core"
    package.mkdir(parents=True)
    (package / "parallel_state.py").write_text(MEGATRON)
    path = os.pathsep.join([str(tmp_path / "packages"), os.environ.get("PYTHONPATH", "")])
    (fact,), words = said(HOOKED.format(before=before), channel, PYTHONPATH=path)
    assert fact.place["tp"] == tensor
    assert words == ""


def groups(settings, world, dimension):
    """Return the sets of ranks that differ in one dimension only."""
    found = {}
    for rank in range(world):
        place = megatron.coordinates(settings, rank, world)
        key = tuple(index for name, (index, _) in place.items() if name != dimension)
        found.setdefault(key, []).append(rank)
    return sorted(found.values())


def test_groups_are_those_of_megatrons_own_example_of_16_gpus():
    # The docstring of initialize_model_parallel in megatron/core/parallel_state.py lists them.
    settings = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4}
    assert groups(settings, 16, "tp") == [[rank, rank + 1] for rank in range(0, 16, 2)]
    assert groups(settings, 16, "pp") == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    assert groups(settings, 16, "dp") == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]


def test_pipeline_may_be_numbered_before_data_and_experts_have_a_numbering_of_their_own():
    settings = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "use_tp_pp_dp_mapping": True}
    assert groups(settings, 8, "pp") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    settings = {"tensor_model_parallel_size": 2, "expert_model_parallel_size": 4, "expert_tensor_parallel_size": 1}
    assert [megatron.coordinates(settings, rank, 8)["ep"][0] for rank in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        ("python pretrain_gpt.py --tensor-model-parallel-size 4 --lr 1", {"tensor_model_parallel_size": 4}),
        ("python p.py --pipeline-model-parallel-size=2", {"pipeline_model_parallel_size": 2}),
        ("python p.py --tensor-model-parallel-size x", {}),
        ("python p.py --tensor-model-parallel-size", {}),
        ("python p.py --tensor-model-parallel-size 0", {}),
        ("torchrun --nproc-per-node 4 p.py --tensor-model-parallel-size 4", {}),
        ("python -m torch.distributed.run p.py --tensor-model-parallel-size 4", {}),
        ("python train.py", {}),
    ],
)
def test_sizes_are_read_from_a_command_line_that_makes_no_ranks_of_its_own(command, settings):
    found = megatron.settings_of_command(command.split())
    assert found == ({**settings, "use_tp_pp_dp_mapping": False} if settings else {})
