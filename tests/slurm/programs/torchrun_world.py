"""A worker of torchrun: the world is nodes times workers, whoever started torchrun."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
line = f"torchrun {dist.get_rank()} {dist.get_world_size()} {os.environ['GROUP_RANK']} {int(total)}\n"
os.write(1, line.encode())  # in one piece: workers of a node share its output
dist.destroy_process_group()
