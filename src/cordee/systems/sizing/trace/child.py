"""Counts what a training step allocates, with fake tensors: no GPU, no memory, no data are needed. Runs in the job's own Python.

`python child.py REQUEST` reads a JSON request and writes one JSON answer on the file descriptor that it names. It imports the
standard library and the job's torch only. Nothing of the user's is changed: files that are opened to be written are /dev/null,
folders are neither made nor removed, processes and connections are refused.
"""

# It talks to whatever torch the job has, which has no types here.
# mypy: ignore-errors

from __future__ import annotations

import builtins
import io
import json
import os
import resource
import runpy
import shutil
import signal
import sys
import time
import traceback

MOST_STEPS = 2
MOST_BLOCKS = 12  # models with more repeated blocks than this are traced at two depths
DEPTHS = (3, 6)


class Enough(BaseException):
    """The steps that were wanted are done; scripts catch no such exception by `except Exception`."""


class RefusedAtPlanTime(RuntimeError):
    """What no trace may do: start processes, connect, change files."""


class NoHook:
    """Stands for the hook of a parameter that has none."""

    def remove(self):
        """Do nothing."""


def protect():
    """Let nothing of the user's be changed, and no process be started."""
    plain_open = io.open

    def reading(file, mode="r", *args, **kwargs):
        writes = any(letter in mode for letter in "wax+") and not isinstance(file, int)
        return plain_open(os.devnull if writes else file, mode.replace("x", "w") if writes else mode, *args, **kwargs)

    io.open = builtins.open = reading
    for name in (
        "mkdir",
        "makedirs",
        "remove",
        "unlink",
        "rename",
        "replace",
        "rmdir",
        "symlink",
        "link",
        "truncate",
        "chmod",
    ):
        setattr(os, name, lambda *args, **kwargs: None)
    shutil.rmtree = lambda *args, **kwargs: None

    def refuse(event, args):
        if event in (
            "subprocess.Popen",
            "os.system",
            "os.fork",
            "os.forkpty",
            "os.posix_spawn",
            "os.exec",
            "socket.connect",
        ):
            raise RefusedAtPlanTime(
                f"the script starts a process or connects ({event}), which is refused while it is traced"
            )
        if (
            event == "open"
            and isinstance(args[2], int)
            and args[2] & (os.O_WRONLY | os.O_RDWR)
            and args[0] != os.devnull
        ):
            raise RefusedAtPlanTime(f"the script writes {args[0]}, which is refused while it is traced")

    sys.addaudithook(refuse)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def user_line(folder):
    """Return the innermost line of the user's code that is running, `file:line`, empty where there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(folder) and "site-packages" not in name:
            return f"{os.path.relpath(name, folder)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class Count:
    """Counts steps and peaks of whatever runs between `__enter__` and `__exit__`."""

    def __init__(self, request):
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.distributed._tools.mem_tracker import MemTracker
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

        self.tracker = Tracker()
        self.steps, self.peaks, self.optimizer = 0, [], ""
        self.step_peaks, self.saved, self.lines = [], {}, {}
        self.batch, self.roots, self.depth, self.model = 0, [], 0, None
        self.functions = function_mode(torch, request["gpu"])
        self.hooks = [
            optimizers.register_optimizer_step_pre_hook(self.before_step),
            optimizers.register_optimizer_step_post_hook(self.after_step),
            torch.nn.modules.module.register_module_forward_pre_hook(self.before_forward),
            torch.nn.modules.module.register_module_forward_hook(self.after_forward, always_call=True),
        ]
        self.saving = torch.autograd.graph.saved_tensors_hooks(self.pack, lambda one: one)
        self.names = []

    def __enter__(self):
        self.fake.__enter__()
        self.tracker.__enter__()
        self.functions.__enter__()
        self.saving.__enter__()
        return self

    def __exit__(self, *exc):
        if self.steps == 0:
            self.saving.__exit__(None, None, None)
        self.functions.__exit__(None, None, None)
        self.tracker.__exit__(None, None, None)
        self.fake.__exit__(None, None, None)
        for hook in self.hooks:
            hook.remove()

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
        """Remember the outermost module, and how many samples it is given."""
        self.depth += 1
        self.names.append(type(module).__name__)
        if self.depth == 1 and any(True for _ in module.parameters()):
            self.model = module
            for one in args:
                if isinstance(one, self.torch.Tensor) and one.dim():
                    self.batch = self.batch or int(one.shape[0])
                    break

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
        """Begin a new peak at what there is now."""
        self.tracker._peak_mem.clear()
        self.tracker._peak_mem_snap.clear()
        self.tracker._update_peak_stats("")

    def before_step(self, optimizer, args, kwargs):
        """Keep the peak of forward and backward."""
        self.optimizer = type(optimizer).__name__
        if self.steps == 0:
            self.saving.__exit__(None, None, None)
        if self.request["gpu"]:
            for group in optimizer.param_groups:
                if group.get("foreach", 0) is None and not group.get("fused"):
                    group["foreach"] = True  # PyTorch's default on GPUs
        self.peaks.append(self.snapshot("peak"))
        self.reset()

    def after_step(self, optimizer, args, kwargs):
        """Keep the peak of the step, and end when there were enough."""
        self.steps += 1
        self.step_peaks.append((self.snapshot("peak"), self.snapshot("current")))
        self.reset()
        if self.steps >= MOST_STEPS:
            raise Enough

    def answer(self):
        """Return what was counted."""
        if self.model is None:
            raise LookupError("no module with parameters was called")
        names = {"Parameter": "parameters", "Buffer": "buffers", "Gradient": "gradients", "Optstate": "optimizer"}

        def sums(snapshot):
            found = {
                mine: sum(size for name, size in snapshot.items() if theirs.lower() in name.lower())
                for theirs, mine in names.items()
            }
            found["total"] = next((size for name, size in snapshot.items() if "total" in name.lower()), 0)
            return found

        largest = max(
            (sum(p.nbytes for p in part.parameters()) for part in blocks_of(self.torch, self.model)), default=0
        )
        own = {}
        lines = {}
        for size, module, line in self.saved.values():
            own[module] = own.get(module, 0) + size
            lines[line] = lines.get(line, 0) + size
        lines.pop("", None)
        common = {
            "name": type(self.model).__name__,
            "batch": self.batch,
            "optimizer_name": self.optimizer,
            "largest": largest,
            "modules": sorted(own.items(), key=lambda one: -one[1])[:20],
            "line": max(lines, key=lambda one: lines[one]) if lines else "",
            "torch": self.torch.__version__,
            "gpu": self.request["gpu"],
            "workspaces": any(
                type(part).__name__.startswith(("Conv", "LSTM", "GRU", "RNN")) for part in self.model.modules()
            ),
        }
        if not self.steps:
            peak = sums(self.snapshot("peak"))
            rest = peak["total"] - peak["parameters"] - peak["buffers"]
            kept = {
                "parameters": peak["parameters"],
                "buffers": peak["buffers"],
                "gradients": 0,
                "optimizer": 0,
                "step": 0,
            }
            return dict(
                common,
                **kept,
                activations=rest,
                peak=peak["total"],
                step_peak=peak["total"],
                peak_gradients=0,
                trains=False,
            )
        peak = sums(self.peaks[-1])
        stepping, after = sums(self.step_peaks[-1][0]), sums(self.step_peaks[-1][1])
        if len(self.peaks) == 1:  # the states came with this step
            peak["total"] += after["optimizer"]
            peak["optimizer"] = after["optimizer"]
        held = after["parameters"] + after["buffers"] + after["optimizer"]
        gradients = max(stepping["gradients"], after["gradients"], peak["gradients"])
        rest = peak["total"] - peak["parameters"] - peak["buffers"] - peak["gradients"] - peak["optimizer"]
        return dict(
            common,
            parameters=after["parameters"],
            buffers=after["buffers"],
            gradients=gradients,
            optimizer=after["optimizer"],
            activations=rest,
            peak_gradients=peak["gradients"],
            step=max(0, stepping["total"] - held - gradients),
            peak=peak["total"],
            step_peak=stepping["total"],
            trains=True,
        )


def blocks_of(torch, model):
    """Return the repeated blocks of a model: the longest list of modules of one class."""
    lists = [part for part in model.modules() if isinstance(part, (torch.nn.ModuleList, torch.nn.Sequential))]
    alike = [part for part in lists if len(part) > 1 and len({type(one) for one in part}) == 1]
    return max(alike, key=len) if alike else []


def function_mode(torch, gpu):
    """Return a mode in which what asks for a GPU gets the CPU, values that nobody computed are guessed, and attention is that of a GPU."""
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    class Flash(torch.autograd.Function):
        """Attention with the memory of a flash kernel: it keeps its inputs, its output and one fp32 number for each row."""

        @staticmethod
        def forward(ctx, query, key, value):
            output = query.new_empty(*query.shape[:-1], value.shape[-1])
            ctx.save_for_backward(query, key, value, output, query.new_empty(query.shape[:-1], dtype=torch.float32))
            return output

        @staticmethod
        def backward(ctx, gradient):
            query, key, value, _, _ = ctx.saved_tensors
            return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)

    def to_cpu(value):
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        return "cpu" if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value

    values = {
        torch.Tensor.item,
        torch.Tensor.__float__,
        torch.Tensor.__int__,
        torch.Tensor.__bool__,
        torch.Tensor.__index__,
    }
    attention = functional.scaled_dot_product_attention

    class Stand(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if function in values:
                if function is torch.Tensor.__bool__:
                    return True
                whole = function in (torch.Tensor.__int__, torch.Tensor.__index__) or not args[0].is_floating_point()
                return 1 if whole and function is not torch.Tensor.__float__ else 1.0
            if function is torch.Tensor.cuda:
                return args[0]
            if gpu and function is attention:
                query, key, value = args[:3] if len(args) > 2 else (kwargs["query"], kwargs["key"], kwargs["value"])
                mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
                if kwargs.get("enable_gqa"):
                    return function(*args, **kwargs)
                if mask is None or not mask.requires_grad:
                    return Flash.apply(query, key, value)
            args = tuple(to_cpu(one) for one in args)
            kwargs = {name: to_cpu(one) for name, one in kwargs.items()}
            if "pin_memory" in kwargs:
                kwargs["pin_memory"] = False
            return function(*args, **kwargs)

    return Stand()


def patch(torch, gpu):
    """Let scripts find one GPU where the job has GPUs, a world of one rank, and loaders without processes."""
    if gpu:
        torch.cuda.is_available = lambda: True
        torch.cuda.device_count = lambda: 1
        torch.cuda.current_device = lambda: 0
        torch.cuda.is_bf16_supported = lambda *args, **kwargs: True
        torch.cuda.get_device_name = lambda *args: "GPU"
        for name in (
            "set_device",
            "synchronize",
            "empty_cache",
            "reset_peak_memory_stats",
            "manual_seed",
            "manual_seed_all",
            "init",
        ):
            setattr(torch.cuda, name, lambda *args, **kwargs: None)
        for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
            setattr(torch.cuda, name, lambda *args, **kwargs: 0)
    plain = torch.amp.autocast_mode.autocast.__init__

    def on_cpu(self, device_type="cpu", dtype=None, *args, **kwargs):
        if device_type == "cuda" and dtype is None:
            dtype = torch.float16
        plain(self, "cpu", dtype, *args, **kwargs)

    torch.amp.autocast_mode.autocast.__init__ = on_cpu
    torch.compile = lambda model=None, **kwargs: model if model is not None else (lambda function: function)
    torch.save = lambda *args, **kwargs: None
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

    torch.nn.Module._apply = convert

    class Through(torch.nn.Module):
        def __init__(self, module, *args, **kwargs):
            super().__init__()
            self.module = module

        def forward(self, *args, **kwargs):
            return self.module(*args, **kwargs)

    torch.nn.parallel.DistributedDataParallel = Through
    import torch.distributed as dist

    def one_rank(*args, **kwargs):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        plain_group("fake", store=FakeStore(), rank=0, world_size=1)

    plain_group = dist.init_process_group
    dist.init_process_group = one_rank
    for name, value in (
        ("RANK", 0),
        ("LOCAL_RANK", 0),
        ("WORLD_SIZE", 1),
        ("LOCAL_WORLD_SIZE", 1),
        ("MASTER_ADDR", "localhost"),
        ("MASTER_PORT", 29500),
    ):
        os.environ[name] = str(value)


def make_model(request):
    """Return what the user's function returns: (model, inputs or None)."""
    space = runpy.run_path(request["path"], run_name="cordee_plan")
    if request["function"] not in space:
        functions = sorted(name for name, one in space.items() if callable(one) and not name.startswith("_"))
        raise LookupError(
            "there is no {} in it; there are {}".format(request["function"], ", ".join(functions) or "no functions")
        )
    made = space[request["function"]]()
    model, inputs = (made[0], made[1]) if isinstance(made, tuple) and len(made) > 1 else (made, None)
    return model, inputs


def inputs_for(torch, request, model, inputs):
    """Return the arguments of a forward: the user's, or token ids and labels for a model of Hugging Face."""
    if inputs is None:
        config = getattr(model, "config", None)
        if getattr(config, "vocab_size", None) is None:
            raise LookupError(
                "the function returns a model alone; return (model, inputs), so that it is known what goes in"
            )
        ids = torch.ones(request["micro_batch"], request["sequence"], dtype=torch.long)
        return (), {"input_ids": ids, "labels": ids} if request["trains"] else {"input_ids": ids}
    if isinstance(inputs, dict):
        return (), inputs
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), {}


def loss_of(torch, output):
    """Return the loss in what a model returns; of logits the cross entropy."""
    found = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if found is not None:
        return found
    outputs = [
        one for one in (output if isinstance(output, (tuple, list)) else (output,)) if isinstance(one, torch.Tensor)
    ]
    scalars = [one for one in outputs if one.dim() == 0]
    if scalars:
        return scalars[0]
    if not outputs:
        raise LookupError("the model returns no tensor to train on")
    logits = outputs[0]
    if logits.dim() < 2:
        return logits.float().mean()
    flat = logits.flatten(0, -2)
    return torch.nn.functional.cross_entropy(flat.float(), torch.zeros(flat.shape[0], dtype=torch.long))


def make_optimizer(torch, request, model):
    """Return the optimizer that was asked for, over what has gradients."""
    kinds = {
        "adamw": (torch.optim.AdamW, {}),
        "adamw-8bit": (torch.optim.AdamW, {}),
        "adamw-fused": (torch.optim.AdamW, {"fused": True}),
        "lamb": (torch.optim.AdamW, {}),
        "sgd": (torch.optim.SGD, {"momentum": 0.9, "lr": 0.1}),
        "lars": (torch.optim.SGD, {"momentum": 0.9, "lr": 0.1}),
        "sgd-plain": (torch.optim.SGD, {"lr": 0.1}),
        "adafactor": (getattr(torch.optim, "Adafactor", None), {}),
    }
    kind, options = kinds.get(request["optimizer"], (None, {}))
    if kind is None:
        raise LookupError(
            "{} cannot be traced with this torch; use formulas, or a script that makes it".format(request["optimizer"])
        )
    return kind([one for one in model.parameters() if one.requires_grad], **options)


def run_function(torch, request, count):
    """Make the model, and train it for two steps, or call it once."""
    model, inputs = make_model(request)
    if not isinstance(model, torch.nn.Module):
        raise LookupError(f"the function returns no torch.nn.Module, but {type(model).__name__}")
    if request["precision"] == "bf16-pure" or (not request["trains"] and request["precision"] in ("bf16", "fp16")):
        model = model.to(torch.bfloat16)
    if request.get("layers"):
        shorten(torch, model, request["layers"])
    args, kwargs = inputs_for(torch, request, model, inputs)
    if request["precision"] == "bf16-pure":
        args = tuple(
            one.bfloat16() if isinstance(one, torch.Tensor) and one.is_floating_point() else one for one in args
        )
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}
    cast = torch.autocast(
        "cpu", dtype=kinds.get(request["precision"], torch.bfloat16), enabled=request["precision"] in kinds
    )
    if not request["trains"]:
        model.eval()
        count.reset()
        with torch.no_grad(), cast:
            model(*args, **kwargs)
        return
    optimizer = make_optimizer(torch, request, model)
    for _ in range(MOST_STEPS):
        with cast:
            loss = loss_of(torch, model(*args, **kwargs))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss


def shorten(torch, model, layers):
    """Leave only the first blocks of the longest list of blocks."""
    blocks = blocks_of(torch, model)
    for _ in range(len(blocks) - layers):
        del blocks[len(blocks) - 1]
    config = getattr(model, "config", None)
    if hasattr(config, "num_hidden_layers"):
        config.num_hidden_layers = layers


def counted(request):
    """Return the answer for one request."""
    import torch

    count = Count(request)
    began = time.monotonic()
    with count:
        try:
            if request["function"]:
                run_function(torch, request, count)
            else:
                sys.argv = [request["path"], *request["argv"]]
                sys.path.insert(0, os.path.dirname(os.path.abspath(request["path"])))
                runpy.run_path(request["path"], run_name="__main__")
        except Enough:
            pass
        except SystemExit as error:
            if not count.steps and error.code not in (None, 0):
                raise LookupError(f"the script ended with {error.code} before its first step")
        found = count.answer()
    found["seconds"] = time.monotonic() - began
    return found


def repeated(request):
    """Return how many repeated blocks the function's model has."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True), function_mode(torch, request["gpu"]):
        model, _ = make_model(request)
        return len(blocks_of(torch, model)) if isinstance(model, torch.nn.Module) else 0


def extrapolated(request, blocks):
    """Return the answer for a deep model from two shallow ones: each part grows by the same for each block."""
    low, high = (counted(dict(request, layers=layers)) for layers in DEPTHS)
    found = dict(high, extrapolated=True)
    for name in (
        "parameters",
        "gradients",
        "optimizer",
        "buffers",
        "activations",
        "step",
        "peak",
        "step_peak",
        "peak_gradients",
    ):
        each = (high[name] - low[name]) / (DEPTHS[1] - DEPTHS[0])
        found[name] = round(high[name] + each * (blocks - DEPTHS[1]))
    # What is kept at the peak may change with the depth: the whole of the peak is what grows evenly.
    found["activations"] = max(
        found["activations"],
        found["peak"] - found["parameters"] - found["buffers"] - found["optimizer"] - found["peak_gradients"],
    )
    found["seconds"] = low["seconds"] + high["seconds"]
    return found


def main():
    """Answer the request in the first argument."""
    request = json.loads(sys.argv[1])
    answer_fd = request["answer_fd"]
    resource.setrlimit(resource.RLIMIT_DATA, (request["memory_bytes"], request["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(2, 1)
    sys.dont_write_bytecode = True
    try:
        import torch

        try:
            from torch.distributed._tools.mem_tracker import MemTracker  # noqa: F401
        except ImportError:
            raise LookupError(f"torch {torch.__version__} cannot count fake tensors; 2.5 or newer can")
        torch.set_num_threads(1)
        os.chdir(request["folder"])
        protect()
        patch(torch, request["gpu"])
        blocks = repeated(request) if request["function"] else 0
        found = extrapolated(request, blocks) if blocks > MOST_BLOCKS else counted(request)
        answer = {"traced": found}
    except BaseException as error:
        line = ""
        for frame, number in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename.startswith(os.path.realpath(request["folder"])):
                line = f"{os.path.basename(frame.f_code.co_filename)}:{number}"
        text = str(error).strip().splitlines()
        answer = {"error": type(error).__name__, "text": text[0][:500] if text else "", "line": line}
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(answer_fd, data) :]
    os._exit(0)


if __name__ == "__main__":
    main()
