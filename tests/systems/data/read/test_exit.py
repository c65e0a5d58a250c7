"""A script that ends with data sets open ends without a word, whatever still holds them when the interpreter does."""

from __future__ import annotations

import subprocess
import sys

import numpy

from cordee.systems.data.node.read.tokens.index import write_token_index

# What libraries such as torch keep for ever is let go when the names of all modules are None already.
SCRIPT = """
import ctypes
import encodings
import sys

import cordee

shards, tokens = sys.argv[1:]
sets = [
    cordee.dataset(shards, batch=4),
    cordee.dataset(shards, batch=4, decode={"txt": bytes.decode}, threads=2),
    cordee.dataset(shards, batch=4, ahead="fetch"),
    cordee.dataset(tokens, batch=4, length=3),
]
loops = [iter(data) for data in sets]
assert all(next(loop) for loop in loops)
encodings.kept = sets, loops
for name, module in sys.modules.items():
    if name.partition(".")[0] in ("encodings", "cordee"):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
"""


def test_data_sets_that_nobody_closed_say_nothing_when_the_interpreter_ends(tmp_path, pack, make):
    shards = pack(tmp_path / "set", make(60))
    (tmp_path / "tokens.bin").write_bytes(numpy.arange(200, dtype="<u2").tobytes())
    write_token_index(tmp_path / "tokens.idx", "<u2", numpy.array([150, 50]))
    arguments = [sys.executable, "-c", SCRIPT, shards, tmp_path / "tokens"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
