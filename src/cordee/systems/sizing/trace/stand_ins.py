"""What a script finds in place of GPUs, other ranks, values that nobody computed, and kernels that only GPUs have."""

# mypy: ignore-errors
from __future__ import annotations

import contextlib
import functools
import math
import os
import types

_QUIET = (
    "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "reset_max_memory_allocated", "manual_seed",
    "manual_seed_all", "init", "_lazy_init", "ipc_collect", "set_per_process_memory_fraction", "set_stream",
)  # fmt: skip
_FSDP_CALLS = (
    "set_requires_gradient_sync", "set_requires_all_reduce", "set_is_last_backward", "set_reshard_after_backward",
    "set_reshard_after_forward", "set_modules_to_forward_prefetch", "set_modules_to_backward_prefetch", "unshard", "reshard",
)  # fmt: skip
_DEVICE_BYTES = 80 << 30


def flash_attention(torch, work):
    """Return attention with the memory of a flash kernel: it keeps its inputs, its output and one fp32 number for each row."""

    class Flash(torch.autograd.Function):
        @staticmethod
        def forward(ctx, query, key, value, causal):
            output = query.new_empty(*query.shape[:-1], value.shape[-1])
            ctx.save_for_backward(query, key, value, output, query.new_empty(query.shape[:-1], dtype=torch.float32))
            rows = math.prod(query.shape[:-1])
            ctx.flops = 2.0 * rows * key.shape[-2] * (query.shape[-1] + value.shape[-1]) * (0.5 if causal else 1.0)
            ctx.moved = sum(one.numel() * one.element_size() for one in (query, key, value, output))
            work.attention += ctx.flops
            work.bytes += ctx.moved
            return output

        @staticmethod
        def backward(ctx, gradient):
            query, key, value, _, _ = ctx.saved_tensors
            work.attention += 2.5 * ctx.flops
            work.bytes += 2 * ctx.moved
            return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None

    return Flash


def to_cpu(torch, value):
    """Return the CPU in the place of a GPU, all else as it is."""
    if isinstance(value, torch.device) and (value.type == "cuda" or value.index is not None):
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value


def placed(torch, function, args, kwargs):
    """Return a function's arguments with the CPU in the place of GPUs, which `x.to(0)` and `torch.ones(2, device=0)` mean, too."""
    if function is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
        args = (args[0], "cpu", *args[2:])
    if type(kwargs.get("device")) is int:
        kwargs["device"] = "cpu"
    if "pin_memory" in kwargs:
        kwargs["pin_memory"] = False
    return tuple(to_cpu(torch, one) for one in args), {name: to_cpu(torch, one) for name, one in kwargs.items()}


def ones(torch, function, of):
    """Return what a tensor would hand to Python or numpy, all of it ones."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        plain = torch.ones(tuple(of.shape), dtype=torch.float32 if of.is_floating_point() else of.dtype)
        return plain.tolist() if function is torch.Tensor.tolist else plain.numpy()


def copied(torch, one, memo):
    """Return a copy: PyTorch's own of a fake parameter shares no memory with its views, which then count beside it."""
    if id(one) not in memo:
        new = torch.empty_like(one.detach())
        parameter = isinstance(one, torch.nn.Parameter)
        memo[id(one)] = (
            torch.nn.Parameter(new, one.requires_grad) if parameter else new.requires_grad_(one.requires_grad)
        )
    return memo[id(one)]


def attended(flash, args, kwargs):
    """Return the attention of a flash kernel; NotImplemented where it takes none such."""
    query, key, value = args[:3] if len(args) > 2 else (kwargs["query"], kwargs["key"], kwargs["value"])
    mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
    if kwargs.get("enable_gqa") or (mask is not None and mask.requires_grad):
        return NotImplemented
    return flash.apply(query, key, value, bool(kwargs.get("is_causal") or (len(args) > 5 and args[5])))


def function_mode(torch, work, guesses):
    """Return a mode in which what asks for a GPU gets the CPU and values that nobody computed are guessed; it has a GPU's attention."""
    from torch.overrides import TorchFunctionMode

    tensor, attention = torch.Tensor, torch.nn.functional.scaled_dot_product_attention
    attention = getattr(attention, "__wrapped__", attention)
    flash = flash_attention(torch, work)
    guess = guesses.Guesses(torch)

    class Stand(TorchFunctionMode):
        strategy = ""

        @property
        def masked(self):
            return guess.masked

        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if function in guess.values:
                return guess.guessed(function, args)
            if function in (tensor.cuda, tensor.pin_memory):
                return args[0]
            if function is tensor.__deepcopy__:
                return copied(torch, *args)
            if function is tensor.tolist or function is tensor.numpy:
                return ones(torch, function, args[0])
            if function in (torch.equal, tensor.equal, torch.allclose, tensor.allclose):
                return True
            known = guess.chosen(function, args, kwargs)
            if known is not NotImplemented:
                return known
            args, kwargs = placed(torch, function, args, kwargs)
            out = function(*args, **kwargs)
            guess.remember(function, args, out)
            return out

        def attend(self):
            """Return attention as a function that takes what a flash kernel would."""

            @functools.wraps(attention)
            def attend(*args, **kwargs):
                known = attended(flash, args, kwargs)
                return attention(*args, **kwargs) if known is NotImplemented else known

            return attend

    return Stand()


class Anything:
    """Stands for a stream, an event, a mesh, a profiler: it can be called, entered and asked for anything, and does nothing."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *args, **kwargs):
        return Anything()

    def __getitem__(self, key):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False

    def __int__(self):
        return 1

    __index__ = __int__

    def __float__(self):
        return 1.0


def patch(torch, gpu, stand):
    """Let scripts find one GPU where the job has GPUs, a world of one rank, and loaders without processes."""
    if gpu:
        _patch_cuda(torch)
        # No mode looks into functions that call it: that of nn.MultiheadAttention does.
        torch.nn.functional.scaled_dot_product_attention = stand.attend()
    _patch_precision(torch)
    _patch_loader(torch)
    _patch_modules(torch)
    _patch_ranks(torch, stand)
    _patch_checkpoints(stand)
    torch.compile = lambda model=None, **kwargs: model if model is not None else (lambda function: function)
    torch.save = lambda *args, **kwargs: None


def _patch_cuda(torch):
    cuda = torch.cuda
    cuda.is_available = cuda.is_initialized = lambda: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.is_bf16_supported = lambda *args, **kwargs: True
    # Optimizers of PyTorch up to 2.11 ask this at each step; a CUDA build without a device raises.
    cuda.is_current_stream_capturing = lambda: False
    cuda.get_device_name = lambda *args: "GPU"
    cuda.get_device_capability = lambda *args: (9, 0)
    cuda.get_device_properties = lambda *args: types.SimpleNamespace(
        name="GPU", major=9, minor=0, total_memory=_DEVICE_BYTES, multi_processor_count=132, warp_size=32
    )
    cuda.mem_get_info = lambda *args: (_DEVICE_BYTES, _DEVICE_BYTES)
    cuda.memory_summary = lambda *args, **kwargs: ""
    cuda.memory_stats = lambda *args: {}
    cuda.get_rng_state = lambda *args: torch.get_rng_state()
    cuda.set_rng_state = lambda *args, **kwargs: None
    for name in _QUIET:
        setattr(cuda, name, lambda *args, **kwargs: None)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, lambda *args, **kwargs: 0)
    cuda.Event = cuda.Stream = cuda.current_stream = cuda.default_stream = cuda.nvtx = Anything
    cuda.stream = cuda.device = lambda *args, **kwargs: contextlib.nullcontext()


def _patch_precision(torch):
    plain = torch.amp.autocast_mode.autocast.__init__

    def on_cpu(self, device_type="cpu", dtype=None, *args, **kwargs):
        if device_type == "cuda" and dtype is None:
            dtype = torch.float16
        plain(self, "cpu", dtype, *args, **kwargs)

    torch.amp.autocast_mode.autocast.__init__ = on_cpu
    older = torch.cuda.amp.autocast_mode.autocast.__init__

    def older_on_cpu(self, enabled=True, dtype=torch.float16, cache_enabled=True):
        on_cpu(self, "cuda", dtype, enabled=enabled, cache_enabled=cache_enabled)

    if older is not plain:
        torch.cuda.amp.autocast_mode.autocast.__init__ = older_on_cpu
    scaler = torch.amp.GradScaler.__init__

    def unscaled(self, *args, **kwargs):
        scaler(self, "cpu", enabled=False)  # no value is known that it could scale by

    torch.amp.GradScaler.__init__ = unscaled


def _patch_loader(torch):
    loader = torch.utils.data.DataLoader.__init__

    def alone(self, *args, **kwargs):
        kwargs["num_workers"] = 0
        for name in ("prefetch_factor", "persistent_workers", "pin_memory", "multiprocessing_context"):
            kwargs.pop(name, None)
        if len(args) > 5:
            args = (*args[:5], 0, *args[6:])
            kwargs.pop("num_workers")
        loader(self, *args, **kwargs)

    torch.utils.data.DataLoader.__init__ = alone


def _patch_modules(torch):
    def convert(self, function, recurse=True):
        # Fake parameters that are watched cannot be swapped in place, as PyTorch does it.
        made = {}
        for module in self.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    if parameter not in made:
                        new = function(parameter)
                        same = new is parameter or (new.dtype == parameter.dtype and new.shape == parameter.shape)
                        made[parameter] = (
                            parameter if same else torch.nn.Parameter(new.detach(), parameter.requires_grad)
                        )
                    module._parameters[name] = made[parameter]
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = function(buffer)
        return self

    plain_to = torch.nn.Module.to

    def to(self, *args, **kwargs):  # a number is that of a GPU
        args = tuple("cpu" if type(one) is int else one for one in args)
        return plain_to(self, *args, **{name: "cpu" if type(one) is int else one for name, one in kwargs.items()})

    torch.nn.Module._apply, torch.nn.Module.to = convert, to


def _patch_checkpoints(stand):
    """Let what is checkpointed run again in the same mode: autograd's engine knows none."""
    from torch.utils import checkpoint

    again, plain = checkpoint.CheckpointFunction.backward, checkpoint._CheckpointFrame.__init__

    def backward(ctx, *args):
        with stand:
            return again(ctx, *args)

    def framed(self, recompute_fn, *args, **kwargs):
        def recompute(*inner, **named):
            with stand:
                return recompute_fn(*inner, **named)

        plain(self, recompute, *args, **kwargs)

    checkpoint.CheckpointFunction.backward = staticmethod(backward)
    checkpoint._CheckpointFrame.__init__ = framed


def _patch_ranks(torch, stand):
    import torch.distributed as dist
    import torch.distributed.device_mesh as meshes
    import torch.distributed.fsdp as fsdp

    class Through(torch.nn.Module):
        """A wrapper that divides nothing: one rank is traced."""

        strategy = "ddp"

        def __init__(self, module, *args, **kwargs):
            super().__init__()
            self.module = module
            stand.strategy = stand.strategy or self.strategy

        @property
        def wrapped(self):
            return self.module

        def forward(self, *args, **kwargs):
            return self.module(*args, **kwargs)

        def no_sync(self):
            return contextlib.nullcontext()

    class ThroughFsdp(Through):
        strategy = "fsdp"

    def fully_shard(module, *args, **kwargs):
        stand.strategy = "fsdp"
        for one in module if isinstance(module, (list, tuple)) else [module]:
            for name in _FSDP_CALLS:
                object.__setattr__(one, name, lambda *args, **kwargs: None)
        policy = kwargs.get("mp_policy")
        kind = getattr(policy, "param_dtype", None)
        if kind is not None and isinstance(module, torch.nn.Module):
            plain = module.forward

            def cast(*args, **kwargs):
                with torch.autocast("cpu", dtype=kind):
                    return plain(*args, **kwargs)

            object.__setattr__(module, "forward", cast)
        return module

    torch.nn.parallel.DistributedDataParallel = torch.nn.DataParallel = torch.nn.parallel.DataParallel = Through
    fsdp.FullyShardedDataParallel, fsdp.fully_shard = ThroughFsdp, fully_shard
    meshes.init_device_mesh = dist.init_device_mesh = Anything

    def one_rank(*args, **kwargs):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        plain_group("fake", store=FakeStore(), rank=0, world_size=1)

    plain_group = dist.init_process_group
    dist.init_process_group = one_rank
    for name, value in (
        ("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_WORLD_SIZE", 1), ("MASTER_ADDR", "localhost"),
        ("MASTER_PORT", 29500),
    ):  # fmt: skip
        os.environ[name] = str(value)
