"""What a library that detects Slurm takes for its world: rank, ranks, rank on the node, node."""

import os

print("slurm", *(os.environ[f"SLURM_{name}"] for name in ("PROCID", "NTASKS", "LOCALID", "NODEID")), flush=True)
