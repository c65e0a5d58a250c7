"""The calls of DCGM's library that are used, by ctypes. Source: dcgm_agent.h, dcgm_structs.h and dcgm_fields.h."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any, Iterator, NamedTuple, Optional, Sequence

from cordee.telemetry.node.samplers.gpu._base import SourceUnavailable

LIBRARIES = ("libdcgm.so.4", "libdcgm.so.3", "libdcgm.so")
SUCCESS, NOT_CONNECTED = 0, -21
GONE = (-18, -19)  # the GPU is lost, or waits for a reset
_CONNECT_MS = 500
_GPU, _EMPTY_GROUP, _LIVE = 1, 1, 1
_MOST_GPUS = 64
_NAME, _UUID = 50, 54
_TEXT_BYTES = 256
# dcgmFieldValue_v2 up to its value, and all of it.
_HEAD, _VALUE_BYTES = struct.Struct("=IIIHhiIq"), 32 + 4096
_DOUBLE, _INTEGER = ord("d"), ord("i")
# Blank values: a reason is added to each base.
_BLANK_DOUBLE, _BLANK_INTEGER = 140737488355328.0, 0x7FFFFFFFFFFFFFF0
_BLANKS = ("no value yet", "not found", "not supported", "no permission")


class Value(NamedTuple):
    """One value, or why there is none; `time_s` is when the host engine read it, UTC epoch seconds."""

    number: Optional[float]
    reason: str
    code: int
    time_s: float


class ConnectParams(ctypes.Structure):
    """`dcgmConnectV2Params_v2`."""

    _fields_ = [(name, ctypes.c_uint) for name in ("version", "persist", "timeout_ms", "is_socket")]


class Dcgm:
    """A connection to the node's host engine.

    Args:
        address: `host:port`, or the path of its socket.
        library: the library's path; None: where it usually is.

    Raises:
        SourceUnavailable: there is no library, or no host engine answers.
    """

    def __init__(self, address: str, library: Optional[str] = None) -> None:
        self._library = _load(LIBRARIES if library is None else (library,))
        self._handle = ctypes.c_void_p()
        self._group = ctypes.c_void_p()
        code = self._call("dcgmInit")
        if code == SUCCESS:
            params = ConnectParams(ctypes.sizeof(ConnectParams) | 2 << 24, 0, _CONNECT_MS, os.path.isabs(address))
            code = self._call("dcgmConnect_v2", address.encode(), ctypes.byref(params), ctypes.byref(self._handle))
        if code != SUCCESS:
            raise SourceUnavailable(f"DCGM: no host engine (nv-hostengine) answers at {address}: {self.words(code)}")

    def words(self, code: int) -> str:
        """Return what the library says of an error code."""
        function = getattr(self._library, "errorString", None) or getattr(self._library, "dcgmErrorString", None)
        if function is None:
            return f"error {code}"
        function.restype = ctypes.c_char_p
        return str((function(code) or b"error %d" % code).decode(errors="replace"))

    def devices(self) -> dict[int, tuple[str, str]]:
        """Return UUID and model of each GPU of the node, by DCGM's number.

        Raises:
            SourceUnavailable: the host engine does not tell.
        """
        ids, count = (ctypes.c_uint * _MOST_GPUS)(), ctypes.c_int()
        self._check(self._call("dcgmGetAllDevices", self._handle, ids, ctypes.byref(count)), "which GPUs there are")
        numbers = list(ids)[: count.value]
        reader = DcgmReader(self, numbers, (_UUID, _NAME), _LIVE) if numbers else None
        if reader is None or reader.refresh() != SUCCESS:
            return {}
        return {number: (reader.text(at, 0), reader.text(at, 1)) for at, number in enumerate(numbers)}

    def watch(self, numbers: Sequence[int], fields: Sequence[int], every_s: float) -> dict[int, str]:
        """Have the host engine read fields at a cadence; return why not, of those that it does not watch.

        Raises:
            SourceUnavailable: it makes no groups.
        """
        create = ctypes.c_char_p(b"cordee")
        code = self._call("dcgmGroupCreate", self._handle, _EMPTY_GROUP, create, ctypes.byref(self._group))
        for number in numbers:
            code = code or self._call("dcgmGroupAddDevice", self._handle, self._group, ctypes.c_uint(number))
        self._check(code, "a group of GPUs")
        if self._watch(fields, every_s) == SUCCESS:
            refused: dict[int, str] = {}
        else:
            codes = {field: self._watch([field], every_s) for field in fields}
            refused = {field: self.words(code) for field, code in codes.items() if code != SUCCESS}
        self._call("dcgmUpdateAllFields", self._handle, 1)
        return refused

    def latest(self, entities: Any, numbers: int, fields: Any, count: int, flags: int, values: Any) -> int:
        """Fill `values` with the newest values and return the error code."""
        return self._call(
            "dcgmEntitiesGetLatestValues", self._handle, entities, numbers, fields, count, ctypes.c_uint(flags), values
        )

    def close(self) -> None:
        """Disconnect: the host engine forgets the watches."""
        self._call("dcgmDisconnect", self._handle)
        self._call("dcgmShutdown")

    def _watch(self, fields: Sequence[int], every_s: float) -> int:
        group = ctypes.c_void_p()
        listed = (ctypes.c_ushort * len(fields))(*fields)
        name = f"cordee-{os.getpid()}-{fields[0]}-{len(fields)}".encode()
        code = self._call("dcgmFieldGroupCreate", self._handle, len(fields), listed, name, ctypes.byref(group))
        every_us, keep_s = ctypes.c_longlong(round(every_s * 1e6)), ctypes.c_double(max(60.0, 10 * every_s))
        return code or self._call("dcgmWatchFields", self._handle, self._group, group, every_us, keep_s, 0)

    def _check(self, code: int, what: str) -> None:
        if code != SUCCESS:
            raise SourceUnavailable(f"DCGM: the host engine does not give {what}: {self.words(code)}")

    def _call(self, name: str, *arguments: Any) -> int:
        function = getattr(self._library, name, None)
        return -20 if function is None else int(function(*arguments))


class DcgmReader:
    """Reads the newest values of some fields of some GPUs into one buffer.

    Attributes:
        numbers: DCGM's numbers of the GPUs; fields: the fields.
    """

    def __init__(self, dcgm: Dcgm, numbers: Sequence[int], fields: Sequence[int], flags: int = 0) -> None:
        self._dcgm, self._flags = dcgm, flags
        self.numbers, self.fields = list(numbers), list(fields)
        pairs = [part for number in numbers for part in (_GPU, number)]
        self._entities = (ctypes.c_uint * len(pairs))(*pairs)
        self._fields = (ctypes.c_ushort * len(fields))(*fields)
        self._values = ctypes.create_string_buffer(_VALUE_BYTES * len(numbers) * len(fields))

    def refresh(self) -> int:
        """Ask for all values and return the error code."""
        return self._dcgm.latest(
            self._entities, len(self.numbers), self._fields, len(self.fields), self._flags, self._values
        )

    def values(self, at: int) -> Iterator[Value]:
        """Yield the values of the `at`-th GPU, field by field."""
        for field in range(len(self.fields)):
            offset = (at * len(self.fields) + field) * _VALUE_BYTES
            *_, kind, status, _, time_us = _HEAD.unpack_from(self._values, offset)
            if status != SUCCESS:
                yield Value(None, f"DCGM: {self._dcgm.words(status)}", status, time_us / 1e6)
            else:
                yield _value(kind, self._values, offset + _HEAD.size, time_us / 1e6)

    def text(self, at: int, field: int) -> str:
        """Return a value that is text, empty where there is none."""
        offset = (at * len(self.fields) + field) * _VALUE_BYTES
        if _HEAD.unpack_from(self._values, offset)[5] != SUCCESS:
            return ""
        start = offset + _HEAD.size
        text = self._values.raw[start : start + _TEXT_BYTES].split(b"\0", 1)[0].decode(errors="replace")
        return "" if text.startswith("<<<") else text


def _value(kind: int, buffer: Any, offset: int, time_s: float) -> Value:
    if kind == _DOUBLE:
        (real,) = struct.unpack_from("=d", buffer, offset)
        blank = real - _BLANK_DOUBLE
        if blank >= 0 or real != real:
            return Value(None, _blank(blank), SUCCESS, time_s)
        return Value(real, "", SUCCESS, time_s)
    if kind == _INTEGER:
        (number,) = struct.unpack_from("=q", buffer, offset)
        if number >= _BLANK_INTEGER:
            return Value(None, _blank(number - _BLANK_INTEGER), SUCCESS, time_s)
        return Value(float(number), "", SUCCESS, time_s)
    return Value(None, f"DCGM: a value of kind {kind}", SUCCESS, time_s)


def _blank(which: float) -> str:
    return f"DCGM: {_BLANKS[int(which)] if 0 <= which < len(_BLANKS) else 'blank'}"


def _load(names: Sequence[str]) -> Any:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise SourceUnavailable(f"DCGM: its library ({names[0]}) is not there")
