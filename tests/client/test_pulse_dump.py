"""A rank that is asked for its dump imports nothing of its own: the script may be importing the same at this moment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("real")

ASKED = """
import os, pickle, sys, threading
os.environ.update(TORCH_FR_BUFFER_SIZE="100", MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
import torch, torch.distributed as dist
from cordee.client import recorders
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(3))
seen = []
def ask():
    asked = threading.Thread(target=lambda: seen.append(recorders.dump()))
    asked.start(); asked.join()
before = set(sys.modules)
ask()
frames = [frame["filename"] for entry in pickle.loads(seen[0])["entries"] for frame in entry["frames"]]
print("lines", any("distributed_c10d" in name for name in frames))
print("imported", sorted(name for name in set(sys.modules) - before if name.startswith("torch")))
during = recorders._call("gloo")
def slow(library):
    def dump():
        other = threading.Thread(target=lambda: seen.append(torch._inductor.config.__name__))
        other.start(); other.join()
        return during()
    return dump if library == "gloo" else None
recorders._call = slow
ask()
print("others", seen[1])
print("after", torch._inductor.__name__)
"""


def test_a_dump_names_lines_and_imports_nothing_and_other_threads_have_the_compiler():
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, env=env, timeout=300)
    assert done.stdout.splitlines() == [
        "lines True",
        "imported []",
        "others torch._inductor.config",
        "after torch._inductor",
    ], done.stderr[-2000:]
