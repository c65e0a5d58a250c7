"""A plain training, as somebody wrote it who has never heard of Cordée: `straggling_train.py STEPS [REPEAT]`.

Every rank reads its samples, which takes a while as from a slow disk, computes with them, so often repeated, and waits for the others in DDP.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

READ_S, SAMPLES = 0.04, 6


class Samples(Dataset):
    """Samples that a store takes its time to give."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(READ_S)
        return torch.full((256,), float(index % 7))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    repeat = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    layers = [torch.nn.Linear(256, 256) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for step, batch in enumerate(DataLoader(Samples(), batch_size=SAMPLES)):
        if step == int(sys.argv[1]):
            break
        optimizer.zero_grad()
        model(batch.repeat(repeat, 1)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
