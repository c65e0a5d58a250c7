"""jax.distributed finds its world without arguments, and a collective crosses all its processes."""

import jax
from jax.experimental import multihost_utils

jax.distributed.initialize()
total = multihost_utils.process_allgather(jax.numpy.asarray(jax.process_index() + 1))
print("jax", jax.process_index(), jax.process_count(), int(total.sum()), flush=True)
jax.distributed.shutdown()
