"""torch DistributedDataParallel over gloo: every rank ends with the same weights, which are the mean over all ranks."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
model(torch.tensor([[float(rank + 1)]])).sum().backward()
gradient = model.module.weight.grad.item()
print("ddp", rank, size, os.environ["LOCAL_RANK"], gradient, flush=True)
dist.destroy_process_group()
