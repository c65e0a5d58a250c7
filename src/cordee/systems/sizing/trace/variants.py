"""What is made of a function's model before it is traced: fewer blocks, checkpointing of activations, LoRA, QLoRA."""

# mypy: ignore-errors
from __future__ import annotations

import functools

# Names of the matrices of queries and values, or of one for queries, keys and values together, as models have them.
_ADAPTED = ("q_proj", "v_proj", "query", "value", "qkv", "c_attn", "query_key_value", "Wqkv", "qkv_proj", "q", "v")
_QUANTISED = 64  # weights share a scale; NF4 holds two weights in a byte


def shorten(torch, blocks, model, layers):
    """Leave only the first blocks of the longest list of blocks."""
    for _ in range(len(blocks) - layers):
        del blocks[len(blocks) - 1]
    config = getattr(model, "config", None)
    if hasattr(config, "num_hidden_layers"):
        config.num_hidden_layers = layers


def checkpoint_blocks(torch, blocks, kind):
    """Let blocks compute their activations again in backward; `selective`: all but what matrices and attention return."""
    from torch.utils import checkpoint

    if not len(blocks):
        raise LookupError("the model has no list of repeated blocks whose activations could be checkpointed")
    options = {"use_reentrant": False}
    if kind == "selective":
        aten = torch.ops.aten
        kept = [aten.mm.default, aten.addmm.default, aten.bmm.default]
        kept += [getattr(aten, name).default for name in _ATTENTIONS if hasattr(aten, name)]
        options["context_fn"] = functools.partial(checkpoint.create_selective_checkpoint_contexts, kept)
    for block in blocks:
        block.forward = functools.partial(checkpoint.checkpoint, block.forward, **options)


_ATTENTIONS = ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention")


def adapt(torch, model, rank, quantised):
    """Freeze a model, hold its matrices in 16 bit, or in 4 for QLoRA, and give queries and values a pair of LoRA's matrices."""
    model.requires_grad_(False)
    model.to(torch.bfloat16)
    linears = [
        (parent, name, child)
        for parent in list(model.modules())
        for name, child in parent.named_children()
        if isinstance(child, torch.nn.Linear) or type(child).__name__ == "Conv1D"
    ]
    head = getattr(model, "get_output_embeddings", lambda: None)()
    adapted = 0
    for parent, name, child in linears:
        wide = name in _ADAPTED
        if wide or (quantised and child is not head and name not in ("lm_head", "head")):
            setattr(parent, name, _adapter(torch)(child, rank if wide else 0, quantised))
            adapted += wide
    if not adapted:
        raise LookupError(
            "no matrices of queries and values were found to adapt; their names are such as " + ", ".join(_ADAPTED[:6])
        )


def _adapter(torch):
    nn = torch.nn

    class Dequantised(torch.autograd.Function):
        """A product with a matrix in 4 bit, which is made 16 bit again in forward and in backward."""

        @staticmethod
        def forward(ctx, x, packed, shape):
            ctx.save_for_backward(packed)
            ctx.shape = shape
            return x @ x.new_empty(shape).t()

        @staticmethod
        def backward(ctx, gradient):
            return gradient @ gradient.new_empty(ctx.shape), None, None

    class LowRank(nn.Module):
        def __init__(self, plain, rank, quantised):
            super().__init__()
            out, inside = plain.weight.shape if isinstance(plain, nn.Linear) else reversed(plain.weight.shape)
            self.shape = (out, inside)
            self.plain = None if quantised else plain
            if quantised:
                bytes_held = out * inside // 2 + out * inside // _QUANTISED
                self.packed = nn.Parameter(torch.zeros(bytes_held, dtype=torch.uint8), requires_grad=False)
            self.down = nn.Linear(inside, rank, bias=False) if rank else None
            self.up = nn.Linear(rank, out, bias=False) if rank else None

        def forward(self, x):
            found = self.plain(x) if self.plain is not None else Dequantised.apply(x, self.packed, self.shape)
            return found if self.down is None else found + self.up(self.down(x)).to(found.dtype)

    return LowRank
