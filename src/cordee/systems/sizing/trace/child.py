"""Counts what a training step allocates, with fake tensors: no GPU, no memory, no data are needed. Runs in the job's own Python.

`python child.py REQUEST` reads a JSON request and writes one JSON answer on the file descriptor that it names. It and the files
beside it import the standard library and the job's torch only.
"""

# It talks to whatever torch the job has, which has no types here.
# mypy: ignore-errors

from __future__ import annotations

import importlib.util
import json
import os
import resource
import runpy
import sys
import traceback

_HERE = os.path.dirname(os.path.abspath(__file__))
MOST_BLOCKS = 12  # models with more repeated blocks than this are traced at two depths
DEPTHS = (3, 6)


def _beside(name):
    """Return a module of this folder, by a name that no module of the user's has."""
    full = "cordee_plan_" + name
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, os.path.join(_HERE, name + ".py"))
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


count, guard, guesses, stand_ins, trainers, variants = (
    _beside(name) for name in ("count", "guard", "guesses", "stand_ins", "trainers", "variants")
)


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


def make_optimizers(torch, request, model):
    """Return the optimizers that were asked for, over what has gradients; Muon steps matrices, AdamW all else."""
    kinds = {
        "adamw": (torch.optim.AdamW, {}),
        "adamw-8bit": (torch.optim.AdamW, {}),
        "adamw-fused": (torch.optim.AdamW, {"fused": True}),
        "lamb": (torch.optim.AdamW, {}),
        "sgd": (torch.optim.SGD, {"momentum": 0.9, "lr": 0.1}),
        "lars": (torch.optim.SGD, {"momentum": 0.9, "lr": 0.1}),
        "sgd-plain": (torch.optim.SGD, {"lr": 0.1}),
        "adafactor": (getattr(torch.optim, "Adafactor", None), {}),
        "muon": (getattr(torch.optim, "Muon", None), {}),
    }
    kind, options = kinds[request["optimizer"]]
    if kind is None:
        raise LookupError(
            "{} cannot be traced with this torch; use formulas, or a script that makes it".format(request["optimizer"])
        )
    own = [one for one in model.parameters() if one.requires_grad]
    if request["optimizer"] != "muon":
        return [kind(own, **options)]
    ends = {id(one) for part in model.modules() if isinstance(part, torch.nn.Embedding) for one in part.parameters()}
    matrices = [one for one in own if one.dim() == 2 and id(one) not in ends]
    others = [one for one in own if one.dim() != 2 or id(one) in ends]
    return [*([kind(matrices)] if matrices else []), *([torch.optim.AdamW(others)] if others else [])]


def change(torch, request, model):
    """Make of the model what the request says: fewer blocks, LoRA, 16 bit, checkpointing."""
    if request.get("layers"):
        variants.shorten(torch, count.blocks_of(torch, model), model, request["layers"])
    if request["task"] in ("lora", "qlora"):
        variants.adapt(torch, model, request["rank"], request["task"] == "qlora")
    elif request["precision"] == "bf16-pure" or (not request["trains"] and request["precision"] in ("bf16", "fp16")):
        model = model.to(torch.bfloat16)
    if request["trains"] and request["checkpointing"] != "none":
        variants.checkpoint_blocks(torch, count.blocks_of(torch, model), request["checkpointing"])
    return model


def run_function(torch, request, counter):
    """Make the model, and train it for two steps, or call it once."""
    model, inputs = make_model(request)
    if not isinstance(model, torch.nn.Module):
        raise LookupError(f"the function returns no torch.nn.Module, but {type(model).__name__}")
    model = change(torch, request, model)
    args, kwargs = inputs_for(torch, request, model, inputs)
    if request["precision"] == "bf16-pure":
        args = tuple(
            one.bfloat16() if isinstance(one, torch.Tensor) and one.is_floating_point() else one for one in args
        )
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}
    cast = torch.autocast(
        request.get("device", "cpu"),
        dtype=kinds.get(request["precision"], torch.bfloat16),
        enabled=request["precision"] in kinds,
    )
    counter.reset()
    if not request["trains"]:
        model.eval()
        with torch.no_grad(), cast:
            model(*args, **kwargs)
        return
    optimizers = make_optimizers(torch, request, model)
    for _ in range(request.get("steps", count.MOST_STEPS)):
        with cast:
            loss = loss_of(torch, model(*args, **kwargs))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        del loss


def counted(request):
    """Return the answer for one request."""
    import torch

    work = count.work_mode(torch, request["gpu"])
    stand = stand_ins.function_mode(torch, work, guesses)
    stand_ins.patch(torch, request["gpu"], stand)
    trainers.patch(torch, stand)
    counter = count.Count(request, stand, work)
    with counter:
        try:
            if request["function"]:
                run_function(torch, request, counter)
            else:
                sys.argv = [request["path"], *request["argv"]]
                sys.path.insert(0, os.path.dirname(os.path.abspath(request["path"])))
                runpy.run_path(request["path"], run_name="__main__")
        except count.Enough:
            pass
        except SystemExit as error:
            if not counter.steps and error.code not in (None, 0):
                raise LookupError(f"the script ended with {error.code} before its first step")
        return counter.answer()


def repeated(request):
    """Return how many repeated blocks the function's model has."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    stand = stand_ins.function_mode(torch, count.work_mode(torch, request["gpu"]), guesses)
    stand_ins.patch(torch, request["gpu"], stand)
    with FakeTensorMode(allow_non_fake_inputs=True), stand:
        model, _ = make_model(request)
        return len(count.blocks_of(torch, model)) if isinstance(model, torch.nn.Module) else 0


def extrapolated(request, blocks):
    """Return the answer for a deep model from two shallow ones: each part grows by the same for each block.

    One step of each is enough for memory: the states, which come with it, are what the second one finds.
    """
    low, high = (counted(dict(request, layers=layers, steps=1)) for layers in DEPTHS)
    config = dict(high["config"], num_hidden_layers=blocks) if high["config"] else {}
    found = dict(high, extrapolated=True, blocks=blocks, config=config)
    for name, value in high.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and name not in ("blocks", "batch", "calls"):
            each = (value - low[name]) / (DEPTHS[1] - DEPTHS[0])
            grown = value + each * (blocks - DEPTHS[1])
            found[name] = grown if isinstance(value, float) else round(grown)
    found["largest"] = high["largest"]
    # What is kept at the peak may change with the depth: the whole of the peak is what grows evenly.
    found["activations"] = max(
        found["activations"],
        found["peak"] - found["parameters"] - found["buffers"] - found["optimizer"] - found["peak_gradients"],
    )
    return found


def main():
    """Answer the request in the first argument."""
    request = json.loads(sys.argv[1])
    answer_fd = request["answer_fd"]
    resource.setrlimit(resource.RLIMIT_DATA, (request["memory_bytes"], request["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(2, 1)
    sys.dont_write_bytecode = True
    sys.path[:] = [one for one in sys.path if os.path.abspath(one) != _HERE]  # its files hide nobody's
    try:
        import torch

        try:
            from torch.distributed._tools.mem_tracker import MemTracker  # noqa: F401
        except ImportError:
            raise LookupError(f"torch {torch.__version__} cannot count fake tensors; 2.5 or newer can")
        torch.set_num_threads(1)
        os.chdir(request["folder"])
        guard.protect(request["scratch"])
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
    data = json.dumps(answer, default=str).encode() + b"\n"
    while data:
        data = data[os.write(answer_fd, data) :]
    os._exit(0)


if __name__ == "__main__":
    main()
