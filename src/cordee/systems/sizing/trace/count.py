"""Counts what runs between two steps of an optimizer: bytes that are held, and the work that is done for them."""

# It talks to whatever torch the job has, which has no types here.
# mypy: ignore-errors

from __future__ import annotations

import os
import sys
import weakref

MOST_STEPS = 2
# What a recurrent layer of oneDNN keeps for backward, for each number of so many bytes that it returns: measured on eight sizes.
RECURRENT_BYTES = {4: 62.4, 2: 43.6}
_KINDS = {"Parameter": "parameters", "Buffer": "buffers", "Gradient": "gradients", "Optstate": "optimizer"}


class Enough(BaseException):
    """The steps that were wanted are done; scripts catch no such exception by `except Exception`."""


class NoHook:
    """Stands for the hook of a parameter that has none."""

    def remove(self):
        """Do nothing."""


def user_line(folder):
    """Return the innermost line of the user's code that is running, `file:line`, empty where there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(folder) and "site-packages" not in name:
            return f"{os.path.relpath(name, folder)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def blocks_of(torch, model):
    """Return the repeated blocks of a model: the longest list of modules of one class."""
    lists = [part for part in model.modules() if isinstance(part, (torch.nn.ModuleList, torch.nn.Sequential))]
    alike = [part for part in lists if len(part) > 1 and len({type(one) for one in part}) == 1]
    return max(alike, key=len) if alike else []


def work_mode(torch, gpu):
    """Return a mode that adds up FLOPs of matrices, in 16 bit and in fp32, of attention, and bytes that kernels read and write.

    On a CPU it takes for a moment what oneDNN takes: copies of what convolutions read and write, in an order of their own and in
    fp32.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import flop_registry

    class Work(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.free = {}
            self.reset()

        def reset(self):
            """Begin anew."""
            self.half = self.full = self.attention = self.bytes = 0.0

        def moves_nothing(self, function):
            """Whether a function only looks at memory, or only takes some."""
            if function not in self.free:
                returns = function._schema.returns
                looks = any(one.alias_info is not None and not one.alias_info.is_write for one in returns)
                self.free[function] = looks or "empty" in function._schema.name or not returns
            return self.free[function]

        def by_onednn(self, name, args, out):
            """Take what oneDNN takes by itself, and return the answer with what it keeps for backward."""
            if "convolution" in name:
                other = args[1] if "backward" in name else out
                copies = [torch.empty(one.shape, dtype=torch.float32) for one in (args[0], other)]
                del copies
            elif name == "aten::mkldnn_rnn_layer":
                each = RECURRENT_BYTES.get(out[0].element_size(), RECURRENT_BYTES[4])
                return (*out[:3], torch.empty(int(out[0].numel() * each), dtype=torch.uint8))
            return out

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            out = function(*args, **kwargs)
            if self.moves_nothing(function):
                return out
            if not gpu:
                out = self.by_onednn(function._schema.name, args, out)
            tensors = [one for one in tree_leaves((args, kwargs, out)) if isinstance(one, torch.Tensor)]
            self.bytes += sum(one.numel() * one.element_size() for one in tensors)
            counted = flop_registry.get(function._overloadpacket)
            if counted is not None:
                flops = counted(*args, **kwargs, out_val=out)
                if "attention" in function._schema.name:
                    self.attention += flops
                elif tensors[0].element_size() <= 2:
                    self.half += flops
                else:
                    self.full += flops
            return out

    return Work()


class Count:
    """Counts steps and peaks of whatever runs between `__enter__` and `__exit__`."""

    def __init__(self, request, functions, work):
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.distributed._tools.mem_tracker import _TOTAL_KEY, MemTracker
        from torch.optim import optimizer as optimizers

        self.request, self.torch = request, torch
        self.folder = os.path.realpath(request["folder"]) + os.sep
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)

        class Tracker(MemTracker):
            def _pre_fw_hook(self, module, inputs):
                self.memory_tracking.pop(module, None)  # a module may be called again
                super()._pre_fw_hook(module, inputs)

            def _track_module_params_and_buffers(self, module, install_grad_hooks=True):
                for parameter in module.parameters():
                    if not parameter.requires_grad:  # a frozen one has no gradient to be told of
                        self._param_to_grad_hook_handles.setdefault(parameter, (NoHook(), NoHook()))
                return super()._track_module_params_and_buffers(module, install_grad_hooks)

            def _update_peak_stats(self, state):
                # Of the whole only: PyTorch keeps a peak of each module, too, in a third of the trace's time.
                for device, held in self._curr_mem_snap.items():
                    whole = held[_TOTAL_KEY]
                    if self._peak_mem.get(device, 0) < whole:
                        self._peak_mem[device], self._peak_mem_snap[device] = whole, dict(held)

        self.tracker = Tracker()
        self.functions, self.work = functions, work
        self.steps, self.peaks, self.step_peaks, self.worked = 0, [], [], None
        self.lead, self.optimizer, self.made, self.stepping = None, "", weakref.WeakSet(), False
        self.saved, self.batch, self.depth, self.model, self.size, self.calls = {}, 0, 0, None, 0, 0
        self.given = 0
        self.hooks = [
            optimizers.register_optimizer_step_pre_hook(self.before_step),
            optimizers.register_optimizer_step_post_hook(self.after_step),
            torch.nn.modules.module.register_module_forward_pre_hook(self.before_forward),
            torch.nn.modules.module.register_module_forward_hook(self.after_forward, always_call=True),
        ]
        self.saving = torch.autograd.graph.saved_tensors_hooks(self.pack, lambda one: one)
        self.names = []
        self.plain = plain, called = torch.optim.Optimizer.__init__, torch.nn.Module.__call__

        def made(one, *args, **kwargs):
            plain(one, *args, **kwargs)
            self.made.add(one)

        def call(module, *args, **kwargs):
            if self.depth == 0:
                given = (one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor) and one.dim())
                self.given = next((int(one.shape[0]) for one in given), 0)
            return called(module, *args, **kwargs)

        torch.optim.Optimizer.__init__, torch.nn.Module.__call__ = made, call

    def __enter__(self):
        for mode in (self.fake, self.tracker, self.work, self.functions, self.saving):
            mode.__enter__()
        return self

    def __exit__(self, *exc):
        if self.lead is None:
            self.saving.__exit__(None, None, None)
        for mode in (self.functions, self.work, self.tracker, self.fake):
            mode.__exit__(None, None, None)
        for hook in self.hooks:
            hook.remove()
        self.torch.optim.Optimizer.__init__, self.torch.nn.Module.__call__ = self.plain

    def pack(self, tensor):
        """Remember what is kept for backward, once for each storage, by module and by line of the user's."""
        try:
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
        except Exception:
            return tensor
        if key not in self.saved and not isinstance(tensor, self.torch.nn.Parameter):
            self.saved[key] = (size, self.names[-1] if self.names else "", user_line(self.folder))
        return tensor

    def before_forward(self, module, args):
        """Remember the outermost module, and how many samples it is given; steps of optimizers are over when it is called."""
        if self.depth == 0:
            self.close_step()
        self.depth += 1
        self.names.append(type(module).__name__)
        size = sum(one.numel() for one in module.parameters()) if self.depth == 1 else 0
        if size and size >= self.size:  # what is checkpointed calls its parts alone, in backward
            self.model, self.size = module, size
            self.calls += self.torch.is_grad_enabled() and module.training
            self.batch = self.batch or self.given

    def after_forward(self, module, args, output):
        """Leave a module."""
        self.depth -= 1
        if self.names:
            self.names.pop()

    def snapshot(self, kind):
        """Return the tracker's sums on the CPU, by the name of what they are."""
        found = self.tracker.get_tracker_snapshot(kind)
        one = next((about for device, about in found.items() if device.type == "cpu"), {})
        return {str(getattr(name, "value", name)): int(size) for name, size in one.items()}

    def reset(self):
        """Begin a new peak at what there is now, and work from nothing."""
        self.work.reset()
        self.tracker._peak_mem.clear()
        self.tracker._peak_mem_snap.clear()
        self.tracker._update_peak_stats("")

    def before_step(self, optimizer, args, kwargs):
        """Keep the peak of forward and backward, when the first of the optimizers steps."""
        if self.request["gpu"]:
            for group in optimizer.param_groups:
                if group.get("foreach", 0) is None and not group.get("fused"):
                    group["foreach"] = True  # PyTorch's default on GPUs
        if self.lead is None:
            self.saving.__exit__(None, None, None)
            self.lead, self.optimizer = weakref.ref(optimizer), type(optimizer).__name__
        if self.lead() is not optimizer:
            return
        self.close_step()
        work = self.work
        self.worked = (work.half, work.full, work.attention, work.bytes, self.calls)
        self.calls = 0
        self.peaks.append(self.snapshot("peak"))
        self.stepping = True
        self.reset()

    def after_step(self, optimizer, args, kwargs):
        """Keep the peak of the step; with one optimizer it is over, others may step behind it."""
        if len(self.made) <= 1:
            self.close_step()

    def close_step(self):
        """Keep the peak of all steps since the first optimizer's, and end when there were enough."""
        if not self.stepping:
            return
        self.stepping = False
        self.steps += 1
        self.step_peaks.append((self.snapshot("peak"), self.snapshot("current")))
        self.reset()
        if self.steps >= self.request.get("steps", MOST_STEPS):
            raise Enough

    def answer(self):
        """Return what was counted."""
        if self.stepping:
            try:
                self.close_step()
            except Enough:
                pass
        if self.model is None:
            raise LookupError("no module with parameters was called")
        return {**self.about_model(), **(self.trained() if self.steps else self.called())}

    def about_model(self):
        """Return what does not depend on the peak."""
        torch, own, lines = self.torch, {}, {}
        for size, module, line in self.saved.values():
            own[module] = own.get(module, 0) + size
            lines[line] = lines.get(line, 0) + size
        lines.pop("", None)
        blocks = blocks_of(torch, self.model)
        work = self.work
        half, full, attention, moved, calls = self.worked or (work.half, work.full, work.attention, work.bytes, 1)
        config = getattr(self.model, "config", None)
        return {
            "name": type(getattr(self.model, "wrapped", self.model)).__name__,
            "batch": self.batch,
            "calls": max(1, calls),
            "optimizer_name": self.optimizer,
            "largest": max((sum(p.nbytes for p in part.parameters()) for part in blocks), default=0),
            "blocks": len(blocks),
            "count": sum(one.numel() for one in self.model.parameters()),
            "modules": sorted(own.items(), key=lambda one: -one[1])[:20],
            "line": max(lines, key=lambda one: lines[one]) if lines else "",
            "gpu": self.request["gpu"],
            "strategy": getattr(self.functions, "strategy", ""),
            "masked": bool(getattr(self.functions, "masked", False)),
            "half_flops": half,
            "full_flops": full,
            "attention_flops": attention,
            "moved_bytes": moved,
            "tf32": torch.backends.cuda.matmul.allow_tf32,
            "config": config.to_dict() if hasattr(config, "to_dict") else {},
            "workspaces": any(
                type(part).__name__.startswith(("Conv", "LSTM", "GRU", "RNN")) for part in self.model.modules()
            ),
        }

    def called(self):
        """Return the peak of a model that was called and not trained."""
        peak = sums(self.snapshot("peak"))
        return {
            "parameters": peak["parameters"],
            "buffers": peak["buffers"],
            "gradients": 0,
            "optimizer": 0,
            "step": 0,
            "activations": peak["total"] - peak["parameters"] - peak["buffers"],
            "peak": peak["total"],
            "step_peak": peak["total"],
            "peak_gradients": 0,
            "trains": False,
        }

    def trained(self):
        """Return the peaks of the last step."""
        peak = sums(self.peaks[-1])
        stepping, after = sums(self.step_peaks[-1][0]), sums(self.step_peaks[-1][1])
        if len(self.peaks) == 1:  # the states came with this step
            peak["total"] += after["optimizer"]
            peak["optimizer"] = after["optimizer"]
        held = after["parameters"] + after["buffers"] + after["optimizer"]
        gradients = max(stepping["gradients"], after["gradients"], peak["gradients"])
        rest = peak["total"] - peak["parameters"] - peak["buffers"] - peak["gradients"] - peak["optimizer"]
        return {
            "parameters": after["parameters"],
            "buffers": after["buffers"],
            "gradients": gradients,
            "optimizer": after["optimizer"],
            "activations": rest,
            "peak_gradients": peak["gradients"],
            "step": max(0, stepping["total"] - held - gradients),
            "peak": peak["total"],
            "step_peak": stepping["total"],
            "trains": True,
        }


def sums(snapshot):
    """Return a snapshot's bytes by our names, and `total`."""
    found = {
        mine: sum(size for name, size in snapshot.items() if theirs.lower() in name.lower())
        for theirs, mine in _KINDS.items()
    }
    found["total"] = next((size for name, size in snapshot.items() if "total" in name.lower()), 0)
    return found
