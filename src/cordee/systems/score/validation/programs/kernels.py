"""Kernels that no torch operation is: compiled at run time by NVRTC, launched on torch's stream through the driver.

Source of all calls: NVIDIA, NVRTC and CUDA Driver API.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cordee.machine.probes.common import Obstacle
from cordee.machine.probes.cuda_driver import Driver

WARP = 32
SOURCE = r"""
static __device__ unsigned long long now_ns() {
    unsigned long long moment;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(moment));
    return moment;
}

// Warps that are held by an SM and do next to nothing.
extern "C" __global__ void hold(unsigned long long duration_ns) {
    unsigned long long began = now_ns();
    while (now_ns() - began < duration_ns)
        __nanosleep(2000);
}

// Eight independent chains of fused multiply-adds a thread; the result is never stored, and the compiler cannot know.
#define CHAINS(NUMBER, FMA)                                                          \
    NUMBER v[8];                                                                     \
    for (int k = 0; k < 8; k++) v[k] = (NUMBER)(threadIdx.x + k);                    \
    for (unsigned long long i = 0; i < rounds; i++) {                                \
        _Pragma("unroll") for (int turn = 0; turn < 16; turn++) {                    \
            _Pragma("unroll") for (int k = 0; k < 8; k++)                            \
                v[k] = FMA(v[k], (NUMBER)0.9990234375, (NUMBER)0.25);                \
        }                                                                            \
    }                                                                                \
    NUMBER sum = 0;                                                                  \
    for (int k = 0; k < 8; k++) sum += v[k];                                         \
    if (sum == (NUMBER)-1) out[0] = sum;

extern "C" __global__ void fma32(float *out, unsigned long long rounds) { CHAINS(float, fmaf) }
extern "C" __global__ void fma64(double *out, unsigned long long rounds) { CHAINS(double, fma) }

// The first thread of each warp follows pointers through memory: each load waits for the one before.
extern "C" __global__ void chase(int *next, unsigned long long rounds, unsigned int count) {
    if (threadIdx.x % 32) return;
    unsigned int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    unsigned int at = (unsigned int)(warp * 2654435761ull % count);
    for (unsigned long long i = 0; i < rounds; i++)
        at = (unsigned int)__ldcg(next + at);
    if (at == count) next[0] = 0;
}
"""
_MULTIPROCESSORS, _THREADS_PER_SM, _SHARED_PER_SM, _SHARED_PER_BLOCK = 16, 39, 81, 97
_MAX_DYNAMIC_SHARED = 8
_RESERVED_SHARED_BYTES = 1024


class Kernels:
    """The kernels of SOURCE on torch's current GPU.

    Args:
        torch: with its CUDA context made.

    Attributes:
        multiprocessors: SMs of the GPU (of the instance, under MIG).
        warps_per_multiprocessor: how many an SM can hold.

    Raises:
        Obstacle: NVRTC or the driver is missing, or refuses.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._driver = Driver()
        torch.zeros(1, device="cuda")  # makes the context current in this thread
        major, minor = torch.cuda.get_device_capability()
        image = compile_source(SOURCE, f"sm_{major}{minor}", torch.version.cuda)
        self._image = image
        self._module = ctypes.c_void_p()
        self._driver.call("cuModuleLoadData", ctypes.byref(self._module), image)
        self._functions: dict[str, ctypes.c_void_p] = {}
        self.multiprocessors = self._attribute(_MULTIPROCESSORS)
        self.warps_per_multiprocessor = self._attribute(_THREADS_PER_SM) // WARP

    def launch(self, name: str, blocks: int, threads: int, *given: Any, blocks_per_multiprocessor: int = 0) -> None:
        """Start a kernel on torch's current stream.

        Args:
            given: ctypes values; a tensor stands for the address of its data.
            blocks_per_multiprocessor: this many blocks fit onto an SM and no more, by the shared memory that each takes;
                0: as many as fit.
        """
        function = self._function(name)
        shared = self._shared_bytes(function, blocks_per_multiprocessor) if blocks_per_multiprocessor else 0
        words = [ctypes.c_uint64(one.data_ptr()) if hasattr(one, "data_ptr") else one for one in given]
        pointers = (ctypes.c_void_p * len(words))(*(ctypes.cast(ctypes.pointer(one), ctypes.c_void_p) for one in words))
        stream = ctypes.c_void_p(self._torch.cuda.current_stream().cuda_stream)
        self._driver.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, shared, stream, pointers, None)

    def _function(self, name: str) -> ctypes.c_void_p:
        if name not in self._functions:
            function = ctypes.c_void_p()
            self._driver.call("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
            self._functions[name] = function
        return self._functions[name]

    def _shared_bytes(self, function: ctypes.c_void_p, blocks: int) -> int:
        """Return dynamic shared memory of which an SM has enough for `blocks` blocks and not for one more."""
        share = self._attribute(_SHARED_PER_SM) // blocks - _RESERVED_SHARED_BYTES
        bytes_ = min(share, self._attribute(_SHARED_PER_BLOCK))
        self._driver.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, bytes_)
        return bytes_

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        device = ctypes.c_int()
        self._driver.call("cuCtxGetDevice", ctypes.byref(device))
        self._driver.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value


def compile_source(source: str, architecture: str, cuda: str | None) -> bytes:
    """Return machine code for an architecture such as `sm_90`; `cuda` is the CUDA version that NVRTC should be of.

    Raises:
        Obstacle: there is no NVRTC, or it refuses the source or the architecture.
    """
    library = _nvrtc(cuda)
    program = ctypes.c_void_p()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"cordee.cu", 0, None, None))
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    if library.nvrtcCompileProgram(program, 1, options):
        raise Obstacle(f"NVRTC cannot compile for {architecture}: {_log(library, program)}", "error")
    size = ctypes.c_size_t()
    _check(library, library.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    image = ctypes.create_string_buffer(size.value)
    _check(library, library.nvrtcGetCUBIN(program, image))
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return image.raw


def _nvrtc(cuda: str | None) -> Any:
    """Return NVRTC of the CUDA that torch was built with, else any; its functions return an int."""
    said = "torch was built without CUDA" if cuda is None else f"no libnvrtc for CUDA {cuda} was found"
    for name in _candidates((cuda or "").partition(".")[0]):
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            said = str(error)
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library
    raise Obstacle(f"NVRTC cannot be loaded: {said}; it comes with CUDA and with torch's CUDA builds", "absent")


def _candidates(major: str) -> Iterator[str]:
    if major:
        yield f"libnvrtc.so.{major}"
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    found = [path for place in places for path in sorted(place.glob("*/lib/libnvrtc.so*"))]
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    found += sorted(Path(home).glob("lib64/libnvrtc.so*"))
    names = [str(path) for path in found if "builtins" not in path.name]
    yield from sorted(names, key=lambda name: not (major and f".so.{major}" in name))
    yield "libnvrtc.so"


def _check(library: Any, code: int) -> None:
    if code:
        raise Obstacle(f"NVRTC error {code}: {library.nvrtcGetErrorString(code).decode()}", "error")


def _log(library: Any, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(max(1, size.value))
    library.nvrtcGetProgramLog(program, log)
    return log.value.decode(errors="replace").strip()[-1000:]
