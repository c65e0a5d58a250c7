"""torch has two Flight Recorders, and numbers groups in each: the right one is dumped, and groups keep their names."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import types

import pytest

from cordee.client import recorders
from cordee.wire.pulse import GroupProgress

EMPTY = {"entries": [], "pg_config": {}, "pg_status": {}}
GLOO, NCCL, BOTH = "cpu:gloo,cuda:gloo", "cuda:nccl", "cpu:gloo,cuda:nccl"


def recorded(library, *calls):
    """Return a dump of a recorder whose groups have made so many calls, of which the last has not ended."""
    status = {
        str(at): {"last_enqueued_collective": count, "last_completed_collective": count - 1}
        for at, count in enumerate(calls)
    }
    return {**EMPTY, "entries": [{"profiling_name": f"{library}:all_reduce"}], "pg_status": status}


class Group:
    """A process group that counts its calls."""

    def _get_sequence_number_for_group(self):
        return 7


def torch_world(**configs):
    """Return what torch keeps of groups of these names, and of one that this process is no member of."""
    groups = {Group(): (name, config) for name, config in configs.items()}
    return types.SimpleNamespace(
        pg_map=dict.fromkeys(groups),
        pg_names={group: name for group, (name, _) in groups.items()},
        pg_group_ranks={-100: {}, **{group: {0: 0, 1: 1} for group in groups}},
        pg_backend_config={group: config for group, (_, config) in groups.items()},
    )


@pytest.fixture
def torch_with(monkeypatch):
    def replace(nccl=None, gloo=None, hip=None):
        def dumping(dump):
            def call(**_):
                if isinstance(dump, Exception):
                    raise dump
                return pickle.dumps(dump)

            return call

        names = {"_dump_nccl_trace": nccl, "_dump_fr_trace": gloo}
        calls = {name: dumping(dump) for name, dump in names.items() if dump is not None}
        torch = types.ModuleType("torch")
        torch.version = types.SimpleNamespace(hip=hip)
        monkeypatch.setitem(sys.modules, "torch", torch)
        own = types.SimpleNamespace(_distributed_c10d=types.SimpleNamespace(**calls))
        monkeypatch.setitem(sys.modules, "torch._C", own)

    return replace


@pytest.mark.parametrize(
    ("nccl", "gloo", "found"),
    [
        (recorded("nccl", 3), EMPTY, "nccl"),
        (recorded("nccl", 3), recorded("gloo", 2), "nccl"),
        (EMPTY, recorded("gloo", 2), "gloo"),
        (None, recorded("gloo", 2), "gloo"),
        (RuntimeError("no GPU answers"), recorded("gloo", 2), "gloo"),
        (EMPTY, EMPTY, ""),
    ],
)
def test_the_dump_is_that_of_nccl_where_it_has_recorded_calls(torch_with, nccl, gloo, found):
    torch_with(nccl, gloo)
    data = recorders.dump()
    assert (pickle.loads(data)["entries"][0]["profiling_name"][:4] if data else "") == found


def test_each_library_counts_the_calls_of_its_groups(torch_with):
    torch_with(recorded("nccl", 3, 5), recorded("gloo", 2, 9))
    assert recorders.group_progress(torch_world(all=BOTH, pair=NCCL, files=GLOO)) == [
        GroupProgress("all", 2, 3, 2),
        GroupProgress("pair", 2, 5, 4),
        GroupProgress("all of Gloo", 2, 2, 1),
        GroupProgress("files", 2, 9, 8),
    ]


@pytest.mark.parametrize(("configs", "found"), [({"all": NCCL, "tp": NCCL}, []), ({"all": NCCL}, [("all", 2, 7, -1)])])
def test_where_groups_are_gone_numbers_are_no_names(torch_with, configs, found):
    torch_with(recorded("nccl", 3, 5, 1), EMPTY)
    assert recorders.group_progress(torch_world(**configs)) == [GroupProgress(*one) for one in found]


def test_rccl_is_not_asked_at_each_beat(torch_with):
    torch_with(recorded("nccl", 3), EMPTY, hip="6.4")
    assert recorders.group_progress(torch_world(all=NCCL)) == [GroupProgress("all", 2, 7, -1)]


RANK = """
import os, sys, torch, torch.distributed as dist
from cordee.client import recorders
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=4)
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
for _ in range(3):
    dist.all_reduce(torch.ones(3), group=pairs[rank // 2])
dist.barrier()
told = [(group.name, group.size, group.enqueued) for group in recorders.group_progress(dist.distributed_c10d._world)]
print(told, flush=True)
dist.barrier()
"""


@pytest.mark.usefixtures("real")
def test_groups_of_some_ranks_have_their_own_names_in_each(tmp_path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TORCH_FR_BUFFER_SIZE": "100", "OMP_NUM_THREADS": "1"}
    argv = [sys.executable, "-c", RANK]
    ranks = [
        subprocess.Popen([*argv, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True, env=env)
        for rank in range(4)
    ]
    told = [rank.communicate(timeout=300)[0].strip() for rank in ranks]
    assert told == [f"[('0', 4, 1), ('{1 + rank // 2}', 2, 3)]" for rank in range(4)]
