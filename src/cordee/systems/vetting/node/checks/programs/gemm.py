"""Multiplies matrices: how fast, and whether every bit is right. Engines: torch (GPU and CPU), numpy, plain Python."""

from __future__ import annotations

import importlib.util
from typing import Any, Callable

from cordee.machine.probes.common import Obstacle, ProbeDevice, ProbeLane, Say, gpus, import_torch, measure, serve
from cordee.systems.vetting.node.checks.programs import integers

_GPU_SIZES = (8192, 4096, 2048, 1024)
_MEMORY_SHARE = 0.25
_CHECKED = {"gpu": 4096, "torch": 512, "numpy": 512, "python": 48}
_CPU_SIZES = {"torch": 1024, "numpy": 1024, "python": 64}
_MAX_VERIFICATIONS = 64


def main() -> None:
    """Answer one request: `engine` (torch, numpy, python; auto: numpy if there is one), `device` (gpu, cpu), `dtype`, `size` or null, `seconds`."""
    serve(run)


def run(request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Return `{engine, dtype, size, checked_size, expected, lanes: [{device, uuid, model, median, best, worst, windows, products, wrong, checksum}]}`.

    Rates are in FLOP/s, with 2 n^3 for a product.
    """
    engine = request["engine"]
    if engine == "torch":
        return _torch(request, say)
    if engine == "numpy" or (engine == "auto" and importlib.util.find_spec("numpy") is not None):
        return _numpy(request, say)
    return _python(request, say)


class Verifier:
    """Counts the wrong ones of many products of the same integer matrices.

    Args:
        product: computes the product once more and returns its checksum.
        expected: what it must be.
    """

    def __init__(self, product: Callable[[], int], expected: int) -> None:
        self._product = product
        self._expected = expected
        self.products, self.wrong = 0, 0
        self.checksum = expected

    def once(self) -> None:
        """Multiply and look, unless it was done often enough."""
        if self.products >= _MAX_VERIFICATIONS:
            return
        found = self._product()
        self.products += 1
        if found != self._expected:
            self.wrong += 1
            self.checksum = found

    def facts(self) -> dict[str, Any]:
        return {"products": self.products, "wrong": self.wrong, "checksum": f"{self.checksum:016x}"}


def _finish(
    engine: str,
    seconds: float,
    pairs: list[tuple[ProbeLane, Verifier]],
    dtype: str,
    size: int,
    checked: int,
    expected: int,
) -> dict[str, Any]:
    """Measure and verify; the integer products come between the windows, while the device is warm."""

    def verify() -> None:
        for _, verifier in pairs:
            verifier.once()

    verify()
    measure([lane for lane, _ in pairs], seconds, verify)
    work = 2.0 * size**3
    lanes = [{**lane.device.facts(), **lane.rates(work), **verifier.facts()} for lane, verifier in pairs]
    return {
        "engine": engine,
        "dtype": dtype,
        "size": size,
        "checked_size": checked,
        "expected": f"{expected:016x}",
        "lanes": lanes,
    }


def _torch(request: dict[str, Any], say: Say) -> dict[str, Any]:
    torch = import_torch()
    on_gpu = request["device"] == "gpu"
    devices = gpus(torch) if on_gpu else [ProbeDevice()]
    dtype = request["dtype"] or (_best_dtype(torch, devices) if on_gpu else "fp32")
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}[dtype]
    torch.backends.cuda.matmul.allow_tf32 = False
    size = request["size"] or (
        min(_gpu_size(torch, device, kind) for device in devices) if on_gpu else _CPU_SIZES["torch"]
    )
    checked = min(size, _CHECKED["gpu" if on_gpu else "torch"])
    pairs, expected = [], 0
    for device in devices:
        say({"begin": device.label})
        verifier, expected = _torch_verifier(torch, device, kind, checked)
        pairs.append((_torch_lane(torch, device, kind, size), verifier))
    return _finish("torch", request["seconds"], pairs, dtype, size, checked, expected)


def _best_dtype(torch: Any, devices: list[ProbeDevice]) -> str:
    """Return bf16 where all GPUs compute it themselves (CUDA capability 8, or AMD), else fp16."""
    return "bf16" if all(torch.cuda.get_device_capability(device.index)[0] >= 8 for device in devices) else "fp16"


def _gpu_size(torch: Any, device: ProbeDevice, kind: Any) -> int:
    """Return the largest size whose three matrices take at most a quarter of what is free."""
    free, total = torch.cuda.mem_get_info(device.index)
    for size in _GPU_SIZES:
        if 3 * size * size * kind.itemsize <= free * _MEMORY_SHARE:
            return size
    raise Obstacle(f"{device.label}: only {free} of {total} bytes of memory are free", "error")


def _torch_lane(torch: Any, device: ProbeDevice, kind: Any, size: int) -> ProbeLane:
    generator = torch.Generator(device=device.torch_name).manual_seed(1)
    shape = (size, size)
    a = torch.randn(shape, generator=generator, device=device.torch_name).to(kind)
    b = torch.randn(shape, generator=generator, device=device.torch_name).to(kind)
    out = torch.empty(shape, dtype=kind, device=device.torch_name)
    return ProbeLane(device, lambda: torch.mm(a, b, out=out), torch)


def _torch_verifier(torch: Any, device: ProbeDevice, kind: Any, size: int) -> tuple[Verifier, int]:
    where = device.torch_name
    index = torch.arange(size * size, dtype=torch.int64, device=where).reshape(size, size)
    a, b = integers.factors(index, size)
    rows, columns = integers.weights(torch.arange(size, dtype=torch.int64, device=where))
    expected = integers.expected_checksum(a, b, rows, columns)
    left, right = a.to(kind), b.to(kind)

    def product() -> int:
        return integers.checksum(torch.mm(left, right).to(torch.int64), rows, columns)

    return Verifier(product, expected), expected


def _numpy(request: dict[str, Any], say: Say) -> dict[str, Any]:
    try:
        import numpy
    except Exception as error:
        raise Obstacle(f"numpy cannot be imported: {type(error).__name__}: {error}", "absent") from None
    dtype = request["dtype"] or "fp64"
    kinds = {"fp32": numpy.float32, "fp64": numpy.float64}
    if dtype not in kinds:
        raise Obstacle(f"numpy does not multiply {dtype}; fp32 and fp64", "absent")
    kind = kinds[dtype]
    size = request["size"] or _CPU_SIZES["numpy"]
    checked = min(size, _CHECKED["numpy"])
    index = numpy.arange(checked * checked, dtype=numpy.int64).reshape(checked, checked)
    a, b = integers.factors(index, checked)
    rows, columns = integers.weights(numpy.arange(checked, dtype=numpy.int64))
    expected = integers.expected_checksum(a, b, rows, columns)
    left, right = a.astype(kind), b.astype(kind)
    say({"begin": "CPU"})
    dense = numpy.random.default_rng(1)
    x, y = dense.standard_normal((size, size)).astype(kind), dense.standard_normal((size, size)).astype(kind)
    lane = ProbeLane(ProbeDevice(), lambda: numpy.matmul(x, y))
    verifier = Verifier(
        lambda: integers.checksum(numpy.matmul(left, right).astype(numpy.int64), rows, columns), expected
    )
    return _finish("numpy", request["seconds"], [(lane, verifier)], dtype, size, checked, expected)


def _python(request: dict[str, Any], say: Say) -> dict[str, Any]:
    size = request["size"] or _CPU_SIZES["python"]
    checked = min(size, _CHECKED["python"])
    a, b = integers.plain_factors(checked)
    rows, columns = integers.plain_weights(checked)
    expected = integers.plain_expected_checksum(a, b, rows, columns)
    x, y = integers.plain_factors(size)
    say({"begin": "CPU"})
    lane = ProbeLane(ProbeDevice(), lambda: _multiply(x, y))
    verifier = Verifier(lambda: integers.plain_checksum(_multiply(a, b), rows, columns), expected)
    return _finish("python", request["seconds"], [(lane, verifier)], "integers", size, checked, expected)


def _multiply(a: list[list[int]], b: list[list[int]]) -> list[list[int]]:
    columns = list(zip(*b))
    return [[sum(map(int.__mul__, line, column)) for column in columns] for line in a]
