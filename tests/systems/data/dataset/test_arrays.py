"""The data set for JAX, in a process of its own: JAX has threads, and other tests of this process fork."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import jax, numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import cordee
from cordee.core.errors import UsageError

def made(**settings):
    return cordee.dataset(sys.argv[1], batch=4, shuffle=False, keys=True, decode={"txt": numpy.float32}, **settings)

ds = made()
batch = next(ds.jax())
assert isinstance(batch["txt"], jax.Array)
assert batch["txt"].tolist() == [0, 1, 2, 3]
assert batch["key"][1] == "s00001"
assert ds.position == 4

sharding = NamedSharding(Mesh(numpy.array(jax.devices()), ("data",)), PartitionSpec("data"))
batches = list(made().jax(sharding=sharding))
assert len(batches) == 51
assert batches[0]["txt"].shape == (4,)
assert batches[0]["txt"].sharding == sharding
wrong = NamedSharding(sharding.mesh, PartitionSpec("data", None, None))
try:
    next(made().jax(sharding=wrong))
except UsageError as error:
    print(error.text.partition(":")[0])
"""


def test_columns_of_numbers_are_jax_arrays_and_a_sharding_makes_them_parts_of_global_ones(packed):
    command = [sys.executable, "-c", PROGRAM, str(packed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.stdout == "a batch cannot be shared out as the sharding says\n", done.stderr
