"""Trains a small GPT on bytes of the Python standard library's source, packed as tokens, with DDP over Gloo.

Runs under `cordee run`, under torchrun, and alone: python train.py --steps 20
"""

import argparse
import hashlib
import os
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import cordee

CONTEXT, WIDTH, HEADS, LAYERS = 64, 96, 4, 2
VOCABULARY = 257  # bytes, and the end of a file


class Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(self.norm_1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.feed(self.norm_2(x))


class CharGPT(nn.Module):
    """A GPT over bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        x = self.token(codes) + self.place(torch.arange(codes.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def endless(data: Any) -> Iterator[dict[str, torch.Tensor]]:
    """Yield this rank's part of every batch, epoch after epoch."""
    while True:
        yield from data.loader()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32, help="sequences of all ranks together")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=50, help="steps between checkpoints")
    options = parser.parse_args()

    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    world = dist.get_world_size() if dist.is_initialized() else 1
    cordee.layout(dp=(rank, world))

    torch.manual_seed(options.seed)
    model: nn.Module = CharGPT()
    if world > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    data = cordee.dataset("corpus", batch=options.batch, length=CONTEXT, seed=options.seed)
    saver = cordee.checkpointer(model, optimizer, data=data, every_steps=options.save_every)
    first = saver.restore()
    if rank == 0:
        parameters = sum(p.numel() for p in model.parameters())
        print(f"{parameters:,} parameters, {data.size:,} samples; {world} ranks go on at step {first}, ", end="")
        print(f"epoch {data.epoch}, sample {data.position}")

    for step, batch in zip(range(first, options.steps), endless(data), strict=False):
        started = time.monotonic()
        tokens = batch["tokens"]
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        speed = options.batch * CONTEXT / (time.monotonic() - started)
        cordee.log(step=step, loss=loss.item(), tokens_per_s=speed, steps=options.steps)
        if rank == 0 and (step % 25 == 0 or step == options.steps - 1):
            print(f"step {step:4d}  loss {loss.item():.3f}  {speed:,.0f} tokens/s")
        stop = cordee.stopping(step)
        if stop or saver.due(step):
            saver.save(step)
        if stop:
            break

    if rank == 0:
        weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
        print(f"weights {hashlib.sha256(weights).hexdigest()[:16]}")
    if dist.is_initialized():
        dist.barrier()  # a rank that leaves while another still talks to it ends that one with an error
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
