"""Computes on NVIDIA GPUs with nothing but the driver's own library: for nodes and interpreters without torch.

Source of all calls and structures: NVIDIA, CUDA Driver API; of the kernel's language: NVIDIA, Parallel Thread Execution ISA.
"""

from __future__ import annotations

import ctypes
from array import array
from typing import Any

from cordee.machine.probes.common import Obstacle, ProbeDevice, Say

_LIBRARY = "libcuda.so.1"
_THREADS = 256
# out[i] = a * x[i] + y[i], compiled by the driver for whatever GPU is there.
_KERNEL = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u64 out, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .f32 %f<5>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<11>;
    ld.param.f32 %f1, [a];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u64 %rd3, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd4, %rd1;
    cvta.to.global.u64 %rd5, %rd2;
    cvta.to.global.u64 %rd6, %rd3;
    mul.wide.u32 %rd7, %r5, 4;
    add.s64 %rd8, %rd4, %rd7;
    add.s64 %rd9, %rd5, %rd7;
    add.s64 %rd10, %rd6, %rd7;
    ld.global.f32 %f2, [%rd8];
    ld.global.f32 %f3, [%rd9];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd10], %f4;
DONE:
    ret;
}
\0"""


class Driver:
    """The driver's library.

    Raises:
        Obstacle: there is none (cause `absent`), or it cannot use a GPU (cause `unusable`).
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise Obstacle(f"the CUDA driver's library cannot be loaded: {error}", "absent") from None
        self.call("cuInit", 0)

    def call(self, name: str, *words: Any) -> None:
        """Call a function.

        Raises:
            Obstacle: it gave an error.
        """
        code = getattr(self._library, name)(*words)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            said = (text.value or b"unknown error").decode(errors="replace")
            raise Obstacle(f"{name}: CUDA error {code}: {said}", "unusable")

    def devices(self) -> list[ProbeDevice]:
        """Return all GPUs that the job may see.

        Raises:
            Obstacle: there is none.
        """
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if count.value == 0:
            raise Obstacle("the CUDA driver sees no GPU", "unusable")
        return [self._device(index) for index in range(count.value)]

    def _device(self, index: int) -> ProbeDevice:
        handle, name, uuid = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.create_string_buffer(16)
        self.call("cuDeviceGet", ctypes.byref(handle), index)
        self.call("cuDeviceGetName", name, len(name), handle)
        self.call("cuDeviceGetUuid", uuid, handle)
        text = uuid.raw.hex()
        parts = [text[:8], text[8:12], text[12:16], text[16:20], text[20:]]
        return ProbeDevice(index, f"GPU-{'-'.join(parts)}", name.value.decode(errors="replace"))

    def saxpy(self, index: int, a: float, x: array[float], y: array[float]) -> array[float]:
        """Return a x + y as a GPU computes it, of arrays of single-precision numbers."""
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(handle), index)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), _KERNEL)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"saxpy")
        count, size = len(x), ctypes.c_size_t(4 * len(x))
        places = [ctypes.c_uint64() for _ in range(3)]
        for place in places:
            self.call("cuMemAlloc_v2", ctypes.byref(place), size)
        for place, values in zip(places, (x, y)):
            self.call("cuMemcpyHtoD_v2", place, ctypes.c_void_p(values.buffer_info()[0]), size)
        given: list[Any] = [ctypes.c_float(a), *places, ctypes.c_uint32(count)]
        pointers = (ctypes.c_void_p * len(given))(*(ctypes.cast(ctypes.pointer(one), ctypes.c_void_p) for one in given))
        blocks = (count + _THREADS - 1) // _THREADS
        self.call("cuLaunchKernel", function, blocks, 1, 1, _THREADS, 1, 1, 0, None, pointers, None)
        self.call("cuCtxSynchronize")
        out = array("f", bytes(4 * count))
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(out.buffer_info()[0]), places[2], size)
        for place in places:
            self.call("cuMemFree_v2", place)
        return out


def run(count: int, say: Say) -> list[dict[str, Any]]:
    """Return `{device, uuid, model, wrong}` of every GPU; numbers are integers that single precision holds exactly."""
    driver = Driver()
    x, y = array("f", (i % 4093 for i in range(count))), array("f", (i % 8191 for i in range(count)))
    lanes = []
    for device in driver.devices():
        assert device.index is not None
        say({"begin": device.label})
        out = driver.saxpy(device.index, 3.0, x, y)
        wrong = sum(value != 3.0 * one + other for value, one, other in zip(out, x, y))
        lanes.append({**device.facts(), "wrong": wrong})
    return lanes
