"""GPUs simulated by torch's CPU: the programs of the checks run as on a node with GPUs, devices and all, without one.

What runs is the same code up to torch; a device is a name that torch is told to replace by its CPU, its clock is simulated, and NCCL is
replaced by Gloo.
"""

from __future__ import annotations

from pathlib import Path

from support.hosts.interpreters import write_interpreter

_BEFORE = """
import sys, importlib.abc, importlib.util

COUNT, FAULTS = {count!r}, {faults!r}

class Patch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        sys.meta_path.insert(0, self)
        self.loader, spec.loader = spec.loader, self
        return spec
    def create_module(self, spec):
        return self.loader.create_module(spec)
    def exec_module(self, module):
        self.loader.exec_module(module)
        simulate(module)

def simulate(torch):
    import contextlib, types
    from torch.overrides import TorchFunctionMode
    current = [0]
    clock = [0.0] * COUNT  # simulated seconds: an operation takes one millisecond, and what its GPU takes longer
    timed = (torch.mm, torch.add, torch.Tensor.copy_)

    def index_of(word):
        if isinstance(word, str) and word.startswith("cuda"):
            return int(word.partition(":")[2] or 0)
        return getattr(word, "simulated_gpu", None)

    def on_cpu(word):
        return "cpu" if isinstance(word, str) and word.startswith("cuda") else word

    class OnCpu(TorchFunctionMode):
        def __torch_function__(self, function, kinds, words=(), named=None):
            named = named or {{}}
            places = [index for index in map(index_of, [*named.values(), *words]) if index is not None]
            result = function(*map(on_cpu, words), **{{key: on_cpu(word) for key, word in named.items()}})
            if places and isinstance(result, torch.Tensor):
                result.simulated_gpu = places[0]
            if places and function in timed:
                clock[places[0]] += 0.001 + FAULTS["slow"].get(places[0], 0.0)
            if places and function in (torch.mm, torch.add) and places[0] in FAULTS["wrong"]:
                result.view(-1)[0] += 1
            return result

    class Event:
        def __init__(self, enable_timing=False):
            self.at = 0.0

        def record(self):
            self.at = clock[current[0]]

        def synchronize(self):
            pass

        def elapsed_time(self, other):
            return (other.at - self.at) * 1e3

    @contextlib.contextmanager
    def on(index):
        current[0] = index
        yield

    def init():
        if FAULTS["refuses"] is not None:
            raise RuntimeError(FAULTS["refuses"])

    def properties(index):
        if index in FAULTS["lost"]:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered\\nCompile with TORCH_USE_CUDA_DSA")
        return types.SimpleNamespace(name="Simulated GPU", uuid="%08d-0000-0000-0000-000000000000" % index)

    generator = torch.Generator
    torch.Generator = lambda device="cpu": generator(device=on_cpu(device))
    torch.Tensor.pin_memory = lambda self: self
    torch.version.cuda = "12.8"
    torch.cuda.init = init
    torch.cuda.device_count = lambda: COUNT
    torch.cuda.get_device_capability = lambda index: (7, 5)
    torch.cuda.mem_get_info = lambda index=None: (FAULTS["free_bytes"], 1 << 36)
    torch.cuda.get_device_properties = properties
    torch.cuda.set_device = lambda index: current.__setitem__(0, index)
    torch.cuda.synchronize = lambda index=None: None
    torch.cuda.Event, torch.cuda.device = Event, on
    import torch.distributed as group
    begin = group.init_process_group
    group.init_process_group = lambda backend, **named: begin("gloo", **named)
    OnCpu().__enter__()

sys.meta_path.insert(0, Patch())
"""


class SimulatedGpus:
    """An interpreter whose torch has GPUs, and a root whose /dev shows them.

    Args:
        folder: where both go.
        count: how many.
        slow: simulated seconds that each operation takes longer than a millisecond, by index.
        wrong: indices whose results are off by one.
        lost: indices that give a CUDA error.
        refuses: what the driver says when it is to be used at all; None: it works.
        free_bytes: free memory of each.
    """

    def __init__(
        self,
        folder: Path,
        count: int = 2,
        slow: dict[int, float] | None = None,
        wrong: list[int] | None = None,
        lost: list[int] | None = None,
        refuses: str | None = None,
        free_bytes: int = 1 << 26,
    ) -> None:
        faults = {
            "slow": slow or {},
            "wrong": wrong or [],
            "lost": lost or [],
            "refuses": refuses,
            "free_bytes": free_bytes,
        }
        self.python = write_interpreter(folder / "bin", _BEFORE.format(count=count, faults=faults)) / "python3"
        self.root = folder / "root"
        for index in range(count):
            device = self.root / "dev" / f"nvidia{index}"
            device.parent.mkdir(parents=True, exist_ok=True)
            device.touch()
