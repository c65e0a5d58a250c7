"""What other estimators say of the models of `cordee plan validate`, beside what the CPU's allocator held.

`python benchmarks/plan_peers.py VALIDATION.json` reads what `cordee plan validate --json` printed and prints Markdown: PyTorch's own
tracker (`torch.distributed._tools.mem_tracker`, two steps with fake tensors, as our trace takes them), accelerate's training estimate
(four times the parameters), DeepSpeed's of model states on one GPU where it is installed, and Megatron's theory for the GPT. Each is
asked what it can say: of the last three none but Megatron's knows activations. Two ranks of FSDP2 are asked of PyTorch's only.
"""

from __future__ import annotations

import json
import runpy
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cordee.systems.sizing.validation as validation
from cordee.systems.sizing.trace import child

MODELS = Path(validation.__file__).with_name("models.py")


def torchs(make: Callable[[], Any], ranks: int = 1) -> float:
    """Return the peak that PyTorch's tracker sees in two steps of AdamW with fake tensors, of ranks of FSDP2 too."""
    import torch
    import torch.distributed.fsdp
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed._tools.mem_tracker import MemTracker

    mesh = mesh_of(torch, ranks) if ranks > 1 else None
    with FakeTensorMode(allow_non_fake_inputs=True):
        model, made = make()
        inputs, _ = child.inputs_for(torch, {}, model, made)
        for part in (*model.blocks, model) if mesh else ():
            torch.distributed.fsdp.fully_shard(part, mesh=mesh)
        own = [one for one in model.parameters() if one.requires_grad]
        optimizer = torch.optim.AdamW(own, fused=ranks > 1)
        tracker = FSDPMemTracker(model, optimizer) if ranks > 1 else MemTracker()
        tracker.track_external(model, optimizer, *inputs) if ranks == 1 else tracker.track_inputs(inputs)
        with tracker:
            for _ in range(2):
                loss = child.loss_of(torch, model(*inputs))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                tracker.reset_mod_stats()
                del loss
    return float(next(iter(tracker.get_tracker_snapshot("peak").values()))["Total"])


def mesh_of(torch: Any, ranks: int) -> Any:
    """Return a mesh of ranks that are not there."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    return torch.distributed.init_device_mesh("cpu", (ranks,))


def accelerates(make: Callable[[], Any]) -> float:
    """Return what `accelerate estimate-memory` tells of training with Adam in fp32."""
    from accelerate.utils.modeling import calculate_maximum_sizes

    return 4.0 * calculate_maximum_sizes(make()[0])[0]


def deepspeeds(make: Callable[[], Any]) -> float:
    """Return DeepSpeed's estimate of model states by ZeRO 2 on one GPU, nothing offloaded."""
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    count = sum(one.numel() for one in make()[0].parameters())
    return float(estimate_zero2_model_states_mem_needs(count, num_gpus_per_node=1, num_nodes=1, cpu_offload=False)[1])


def megatrons(make: Callable[[], Any]) -> float:
    """Return 18 bytes a parameter and Korthikanti's activations, 34 times sequence, batch and width for each block, for a GPT."""
    model = make()[0]
    blocks = getattr(model, "blocks", ())
    if not len(blocks) or not hasattr(getattr(blocks[0], "mixing", None), "qkv"):
        return float("nan")
    tokens, width, heads, length = 512, 256, 4, 128
    count = sum(one.numel() for one in model.parameters())
    return 18.0 * count + len(blocks) * tokens * width * (34 + 5 * heads * length / width)


PEERS: dict[str, Callable[[Callable[[], Any]], float]] = {
    "PyTorch": torchs, "accelerate": accelerates, "DeepSpeed": deepspeeds, "Megatron": megatrons
}  # fmt: skip


def estimate(peer: str, case: dict[str, Any], makers: dict[str, Any]) -> float | None:
    """Return what a peer says of a case, in bytes; None: it cannot say."""
    name, _, layout = case["model"].partition(", ")
    try:
        if not layout:
            return PEERS[peer](makers[name])
        return torchs(makers[name], 2) if peer == "PyTorch" and layout.startswith("FSDP") else None
    except ImportError:
        return None
    except Exception as error:  # that it raises is what is to be told
        print(f"{peer}, {case['model']}: {type(error).__name__}: {str(error).splitlines()[0][:160]}", file=sys.stderr)
        return None


def main(path: Path) -> None:
    """Print each fp32 case with all estimates, and each estimator's median and worst error."""
    cases = [one for one in json.loads(path.read_text())["found"] if one["precision"] == "fp32" and one["measured"]]
    makers = runpy.run_path(str(MODELS))
    errors: dict[str, list[float]] = {name: [] for name in ("cordee", *PEERS)}
    print("| model, fp32 | held, MB | cordee | " + " | ".join(PEERS) + " |\n" + "|---" * (3 + len(PEERS)) + "|")
    for case in cases:
        cells = []
        for name in errors:
            said = case["predicted"] if name == "cordee" else estimate(name, case, makers)
            if said is None or said != said:
                cells.append("-")
                continue
            errors[name].append(said / case["measured"] - 1)
            cells.append(f"{errors[name][-1]:+.1%}")
        print(f"| {case['model']} | {case['measured'] / 1e6:.1f} | " + " | ".join(cells) + " |")
    for name, found in errors.items():
        if found:
            sizes = [abs(one) for one in found]
            print(f"\n{name}: median {statistics.median(sizes):.1%}, worst {max(sizes):.1%}, of {len(found)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
