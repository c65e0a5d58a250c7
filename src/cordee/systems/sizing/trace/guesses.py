"""Values that nobody computed, where a script needs them: a number is 1, a mask chooses all, experts get even shares."""

# mypy: ignore-errors
from __future__ import annotations

import math
import operator


class Guesses:
    """What is guessed, and what follows of it.

    Attributes:
        values: functions that need a value of one tensor.
        masked: whether a mask was guessed.
    """

    def __init__(self, torch):
        from torch.utils.weak import WeakTensorKeyDictionary

        self.torch, self.masked = torch, False
        tensor = torch.Tensor
        self.values = {
            tensor.item,
            tensor.__float__,
            tensor.__int__,
            tensor.__bool__,
            tensor.__index__,
            tensor.__format__,
        }
        self.nowhere = {torch.isnan, torch.isinf, tensor.isnan, tensor.isinf}
        self.picks = {torch.argmax, tensor.argmax, torch.topk, tensor.topk}
        self.arithmetic = {
            tensor.__add__: operator.add,
            tensor.__sub__: operator.sub,
            tensor.__mul__: operator.mul,
            tensor.add: operator.add,
        }
        # Of a tensor that says which rows are chosen, what share of them; of one that says by what, among how many.
        # What whole numbers are guessed to be, where they are computed from another guess.
        self.known = WeakTensorKeyDictionary()
        self.shares, self.choices = WeakTensorKeyDictionary(), WeakTensorKeyDictionary()

    def rows(self, mask):
        """Return how many a mask chooses: all, where it is not known; experts are chosen evenly."""
        self.masked = True
        return max(1, math.ceil(mask.numel() * self.shares.get(mask, 1.0)))

    def guessed(self, function, args):
        """Return a value for what would need one."""
        tensor = self.torch.Tensor
        if function is tensor.__format__:
            return format(1.0, args[1]) if args[0].dim() == 0 else str(args[0])
        if function is tensor.__bool__:
            return self.shares.get(args[0]) != 0.0
        whole = function in (tensor.__int__, tensor.__index__) or not args[0].is_floating_point()
        return self.known.get(args[0], 1) if whole and function is not tensor.__float__ else 1.0

    def chosen(self, function, args, kwargs):
        """Return the answer of a function whose shape depends on a mask's values; NotImplemented: it is none."""
        torch, tensor = self.torch, self.torch.Tensor
        first = args[0] if args else None
        if function in (torch.where, torch.nonzero, tensor.nonzero, tensor.where) and len(args) == 1:
            if not isinstance(first, tensor):
                return NotImplemented
            count = self.rows(first)
            if function in (torch.where, tensor.where) or kwargs.get("as_tuple"):
                return tuple(torch.zeros(count, dtype=torch.long) for _ in range(max(1, first.dim())))
            return torch.zeros(count, first.dim(), dtype=torch.long)
        mask = args[1] if len(args) > 1 else None
        if not isinstance(mask, tensor) or mask.dtype != torch.bool or not isinstance(first, tensor) or not mask.dim():
            return NotImplemented
        if function in (tensor.__getitem__, torch.masked_select, tensor.masked_select):
            # A gather of rows, whose backward makes a tensor of the whole again.
            where = torch.zeros(self.rows(mask), dtype=torch.long)
            return first.flatten(0, mask.dim() - 1).index_select(0, where)
        if function is tensor.__setitem__ and isinstance(args[2], tensor) and args[2].dim() > 0:
            where = torch.zeros(args[2].shape[0], dtype=torch.long)
            first.view(-1, *first.shape[mask.dim() :]).index_copy_(0, where, args[2])
            return None
        return NotImplemented

    def remember(self, function, args, out):
        """Keep what is known of a mask through what is made of it."""
        tensor = self.torch.Tensor
        if function in self.nowhere:
            self.shares[out] = 0.0
        elif function in self.arithmetic and len(args) == 2 and args[0].dim() == 0 and type(args[1]) is int:
            self.known[out] = self.arithmetic[function](self.known.get(args[0], 1), args[1])
        elif function in self.picks and isinstance(args[0], tensor) and args[0].dim():
            indices = out[1] if isinstance(out, tuple) else out
            self.choices[indices] = args[0].shape[-1]
        elif self.shares or self.choices:
            first = next((one for one in args if isinstance(one, tensor)), None)
            if not isinstance(out, tensor) or first is None:
                return
            among, share = self.choices.get(first), self.shares.get(first)
            if among and (out.dtype == self.torch.bool or function is self.torch.nn.functional.one_hot):
                self.shares[out] = 1.0 / among
            elif among and not out.is_floating_point():
                self.choices[out] = among
            elif share is not None and not out.is_floating_point() and "sum" not in function.__name__:
                self.shares[out] = share
