"""Models of many families, small enough to be run on a CPU; each function returns (model, inputs) and is traced as a user's is."""

# mypy: ignore-errors
from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, VOCABULARY, LENGTH, BATCH = 256, 4, 8000, 128, 4


class TokenAttention(nn.Module):
    """Self-attention with queries, keys and values of one matrix."""

    def __init__(self, causal=True):
        super().__init__()
        self.qkv, self.out, self.causal = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), causal

    def forward(self, x):
        batch, length, _ = x.shape
        query, key, value = self.qkv(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out(found.transpose(1, 2).reshape(batch, length, WIDTH))


class SplitAttention(nn.Module):
    """Self-attention with a matrix each for queries, keys and values, which tensor parallelism can divide by heads."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.value, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        width = WIDTH // HEADS
        parts = (part(x).view(batch, length, -1, width).transpose(1, 2) for part in (self.query, self.key, self.value))
        found = functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.out(found.transpose(1, 2).reshape(batch, length, -1))


class GatedMlp(nn.Module):
    """An MLP with a gate, as Llama has it."""

    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class PlainMlp(nn.Sequential):
    """An MLP of two matrices."""

    def __init__(self):
        super().__init__(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))


class DenseExperts(nn.Module):
    """A mixture of experts that computes all and weighs them."""

    def __init__(self, experts=4):
        super().__init__()
        self.router = nn.Linear(WIDTH, experts)
        self.experts = nn.ModuleList(GatedMlp() for _ in range(experts))

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        return sum(weights[..., number : number + 1] * expert(x) for number, expert in enumerate(self.experts))


class SparseExperts(DenseExperts):
    """A mixture of experts that picks tokens by a mask: shapes depend on values."""

    def forward(self, x):
        chosen, out = self.router(x).argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mask = chosen == number
            out[mask] = expert(x[mask]).to(out.dtype)
        return out


class MixerBlock(nn.Module):
    """A block with norms in front, of any mixing of tokens and any MLP."""

    def __init__(self, mixing, mlp, norm=nn.LayerNorm):
        super().__init__()
        self.first, self.second, self.mixing, self.mlp = norm(WIDTH), norm(WIDTH), mixing, mlp

    def forward(self, x):
        x = x + self.mixing(self.first(x))
        return x + self.mlp(self.second(x))


class TokenModel(nn.Module):
    """Embedding, blocks, head, loss."""

    def __init__(self, block, layers=4, tied=False, checkpointed=False):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(VOCABULARY, WIDTH), nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        self.checkpointed = checkpointed

    def forward(self, ids, labels):
        x = self.embedding(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class ScanMixing(nn.Module):
    """A state-space layer in the manner of Mamba: a short convolution, gates, and a cumulative sum over time."""

    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.mixing = nn.Conv1d(2 * WIDTH, 2 * WIDTH, 4, padding=3, groups=2 * WIDTH)

    def forward(self, x):
        inside, gate = self.inner(x).chunk(2, -1)
        inside = self.mixing(inside.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        state = torch.cumsum(functional.silu(inside), 1)
        return self.out(state * functional.silu(gate))


class LowRankLinear(nn.Module):
    """A frozen matrix with LoRA beside it."""

    def __init__(self, plain, rank=8):
        super().__init__()
        self.plain = plain.requires_grad_(False)
        self.down, self.up = (
            nn.Linear(plain.in_features, rank, bias=False),
            nn.Linear(rank, plain.out_features, bias=False),
        )

    def forward(self, x):
        return self.plain(x) + self.up(self.down(x))


class SquaredRelu(torch.autograd.Function):
    """An activation with a backward of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu().square()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 2 * x.relu()


class SquaredMlp(PlainMlp):
    """An MLP with that activation."""

    def forward(self, x):
        return self[2](SquaredRelu.apply(self[0](x)))


class ClippedBlock(MixerBlock):
    """A block that looks at a value in forward."""

    def forward(self, x):
        return super().forward(x / max(1.0, x.detach().abs().max().item() / 100))


class TranslationModel(nn.Module):
    """An encoder and a decoder, as T5 has them."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.both = nn.Transformer(WIDTH, HEADS, 2, 2, 4 * WIDTH, dropout=0.0, batch_first=True)

    def forward(self, ids, labels):
        logits = self.head(self.both(self.embedding(ids), self.embedding(labels)))
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class PixelBlock(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, width, wider):
        super().__init__()
        self.first, self.second = nn.Conv2d(width, wider, 3, padding=1), nn.Conv2d(wider, wider, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(wider), nn.BatchNorm2d(wider)])
        self.around = nn.Conv2d(width, wider, 1)

    def forward(self, x):
        inside = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(inside)) + self.around(x)).relu()


class ResidualNet(nn.Module):
    """Blocks of convolutions, each stage at half the size."""

    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([PixelBlock(3, 32), PixelBlock(32, 64), PixelBlock(64, 128)])
        self.head = nn.Linear(128, 10)

    def forward(self, pictures):
        for stage in self.stages:
            pictures = functional.max_pool2d(stage(pictures), 2)
        return self.head(pictures.mean((2, 3)))


class SegmentingNet(nn.Module):
    """A U-Net: down, up, and ways across."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = PixelBlock(3, 32), PixelBlock(32, 64), PixelBlock(64 + 32, 32)
        self.last = nn.Conv2d(32, 2, 1)

    def forward(self, pictures):
        across = self.first(pictures)
        deep = self.second(functional.max_pool2d(across, 2))
        up = functional.interpolate(deep, scale_factor=2)
        return self.last(self.third(torch.cat([across, up], 1))).mean()


class PatchModel(nn.Module):
    """A vision transformer."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.blocks = nn.ModuleList(MixerBlock(TokenAttention(causal=False), PlainMlp()) for _ in range(4))
        self.head = nn.Linear(WIDTH, 100)

    def forward(self, pictures):
        x = self.patches(pictures).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class RecurrentModel(nn.Module):
    """An LSTM over tokens."""

    def __init__(self):
        super().__init__()
        self.embedding, self.cells = nn.Embedding(VOCABULARY, WIDTH), nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids, labels):
        logits = self.head(self.cells(self.embedding(ids))[0])
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def _tokens(model):
    ids = torch.arange(BATCH * LENGTH).view(BATCH, LENGTH) % VOCABULARY
    return model, (ids, ids)


def _pictures(model):
    return model, torch.ones(8, 3, 64, 64)


def _low_rank():
    block = MixerBlock(TokenAttention(causal=False), PlainMlp())
    block.mixing.qkv, block.mixing.out = LowRankLinear(block.mixing.qkv), LowRankLinear(block.mixing.out)
    for part in (block.mlp, block.first, block.second):
        part.requires_grad_(False)
    return block


BLOCKS = {
    "gpt": lambda: MixerBlock(TokenAttention(), PlainMlp()),
    "llama": lambda: MixerBlock(TokenAttention(), GatedMlp(), nn.RMSNorm),
    "split_llama": lambda: MixerBlock(SplitAttention(), GatedMlp(), nn.RMSNorm),
    "dense_experts": lambda: MixerBlock(TokenAttention(), DenseExperts()),
    "mamba": lambda: MixerBlock(ScanMixing(), PlainMlp()),
    "bert_lora": _low_rank,
    "custom_autograd": lambda: MixerBlock(TokenAttention(), SquaredMlp()),
    "item_in_forward": lambda: ClippedBlock(TokenAttention(), PlainMlp()),
    "dynamic_shapes": lambda: MixerBlock(TokenAttention(), SparseExperts()),
}
WHOLE = {"t5": TranslationModel, "lstm": RecurrentModel}
PICTURES = {"vit": PatchModel, "unet": SegmentingNet, "resnet": ResidualNet}
for _name, _block in BLOCKS.items():
    for _checkpointed in (False, True):
        globals()[_name + "_checkpointed" * _checkpointed] = lambda block=_block, again=_checkpointed: _tokens(
            TokenModel(block, checkpointed=again)
        )
globals()["tied"] = lambda: _tokens(TokenModel(BLOCKS["gpt"], tied=True))
for _name, _kind in WHOLE.items():
    globals()[_name] = lambda kind=_kind: _tokens(kind())
for _name, _kind in PICTURES.items():
    globals()[_name] = lambda kind=_kind: _pictures(kind())
