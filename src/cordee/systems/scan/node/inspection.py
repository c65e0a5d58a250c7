"""Looks at one file by its content: what it is, what is inside of that, and so on inwards; one bad entry hides no other."""

from __future__ import annotations

import ast
import base64
import bz2
import contextlib
import lzma
import math
import re
import tarfile
import zlib
from itertools import islice
from typing import Any, Callable, Iterator, Optional

from cordee.systems.scan.node.formats import models, zip_entries
from cordee.systems.scan.node.formats.decompressors import decompressor
from cordee.systems.scan.node.formats.pickle_globals import HARMFUL_MODULES, PickleGlobals, is_name
from cordee.systems.scan.node.formats.pickle_machine import PickleStream, streams
from cordee.systems.scan.node.formats.texts import LIMIT_BYTES, secret_sights, text_sights
from cordee.systems.scan.node.source import BudgetSpent, BytesSource, ScanBudget, Source, TooMuch
from cordee.systems.scan.node.verdict import Sight

_MOST_SIGHTS = 200
_GZIP, _BZIP2, _XZ, _LZ4, _ZSTD, _SEVEN, _RAR = (
    b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf\x27\x1c", b"Rar!"
)  # fmt: skip
_JOBLIB_ZLIB = b"ZF0x"  # of old: its length, filled up to 21 bytes, stands before
_LZMA = b"\x5d\x00"  # the older format, which joblib writes, has no magic of its own
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_PACKED: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (_BZIP2, bz2.BZ2Decompressor),
    (_XZ, lzma.LZMADecompressor),
    (_LZMA, lzma.LZMADecompressor),
    (_GZIP, lambda: zlib.decompressobj(47)),
    *((magic, zlib.decompressobj) for magic in _ZLIB),
)
_HDF5, _NUMPY, _GGUF = b"\x89HDF\r\n\x1a\n", b"\x93NUMPY", b"GGUF"
_HDF5_BEGINS = (512, 1024, 2048, 4096)  # behind a block of the user's

# A pickle may begin anywhere that its loader looks: behind a header, in a column of a table, as base64 in a text.
_MOST_HIDDEN, _HIDDEN_BYTES, _FIRST_BYTES = 1000, 4096, 64 << 20
# What looks at all that follows such a header is asked only where opcodes follow that can begin a pickle: the first pushes something,
# and of the next two each is one. Arguments are shorter than what is looked through.
_PUSH = rb"[N\x88\x89\])}\x8f(]|[K\x80\x82].|[M\x83]..|[J\x84].{4}|[G\x95].{8}"
_OPCODE = rb"[N\x88\x89\])}\x8f(ae.ltds012uRboQ\x81\x85-\x87\x90-\x94\x97\x98]|[Khq\x80\x82].|[M\x83]..|[Jjr\x84].{4}|[G\x95].{8}"
_LONG_PUSH = (
    rb"[IFL][\t-~]|[VP]|S[\"']|c[A-Za-z_\x80-\xff]|[UC\x8a\x8c]|[TXB\x8b].[\0-\x10]\0\0|[\x8d\x8e\x96].[\0-\x10]\0{6}"
)
_HIDDEN = re.compile(
    rb"\x80[\x02-\x05](?=%b|(?:%b)(?:(?:%b)?(?:[gip]|%b)|(?:%b){2}))(?=.{0,%d}?(?:[ci]|\x8c.|X.\0\0\0)(?:%b)[.\n\x8c\x94qr])"
    % (_LONG_PUSH, _PUSH, _OPCODE, _LONG_PUSH, _OPCODE, _HIDDEN_BYTES - 64, "|".join(sorted(HARMFUL_MODULES)).encode()),
    re.S,
)
# The same in protocol 0 or 1, whose opcodes and names are text, behind a header of so many bytes at most.
_HIDDEN_TEXT = re.compile(
    rb"\(?[ci](?:%b)(?:\.[\w.]{1,200})?\n[A-Za-z_]\w{0,99}\n" % "|".join(sorted(HARMFUL_MODULES)).encode()
)
_TEXT_HEADER = 4096
_BASE64 = re.compile(r"gA[I-X][A-Za-z0-9+/]{21,}(?:\r?\n[A-Za-z0-9+/]+)*")


class Inspection:
    """The look at one file.

    Args:
        known: which names of pickles are harmless.
        secrets: whether keys are looked for in texts.
        until: when to stop unpacking, in monotonic seconds.

    Attributes:
        sights: what was seen.
        kinds: what it is, from outside to inside.
    """

    def __init__(self, known: PickleGlobals, secrets: bool = False, until: float = math.inf) -> None:
        self._known, self._secrets, self._budget = known, secrets, ScanBudget(until)
        self.sights: list[Sight] = []
        self.kinds: dict[str, None] = {}
        self._entries: set[tuple[Optional[int], int]] = set()

    def look(self, source: Source, where: str = "", depth: int = 0) -> None:
        """Look at a file, or at something inside of it."""
        try:
            if depth:
                self._budget.opened(depth)
            self._look(source, where, depth)
        except TooMuch as error:
            self._saw("file-too-much", "unknown", f"it cannot be looked at as a whole: {error}", where)
            if depth and isinstance(error, BudgetSpent):
                raise
        except MemoryError:
            self._saw("file-too-much", "unknown", "it takes more memory than a scan may have", where)

    def _look(self, source: Source, where: str, depth: int) -> None:
        head = source.at(0, 512)
        if not head:
            return
        known = self._container(head, source, where, depth) or self._model(head, source, where)
        # Whatever a file begins with: an archive may stand behind it, and loaders look for that at its end.
        if known != "zip" and zip_entries.directory_ends(source) and self._zip(source, where, depth):
            known = "zip"
        certain = head[0] == 0x80 and len(head) > 1 and head[1] <= 5
        if self._pickles(source, where, certain, depth) or known not in (None, "hdf5"):
            return
        text = _text(head, source) if known is None else None
        if text is None:
            self._hidden(source, where)
            self._deflated(source, where, depth)
        else:
            for sight in text_sights(text, where):
                self._add(sight)
            for sight in secret_sights(text, where) if self._secrets else ():
                self._add(sight)
            self._hidden(source, where)
            for found in islice(_BASE64.finditer(text), _MOST_HIDDEN):
                with contextlib.suppress(ValueError):
                    self._hidden(BytesSource(base64.b64decode(found.group(0) + "==")), where)

    def _container(self, head: bytes, source: Source, where: str, depth: int) -> Optional[str]:
        if head.startswith((zip_entries.LOCAL, zip_entries.END)):
            self._zip(source, where, depth)
            return "zip"
        for magic, make in _PACKED:
            if head.startswith(magic):
                return self._packed(source, make, magic not in (_LZMA, *_ZLIB), where, depth)
        if head.startswith(_JOBLIB_ZLIB):
            return self._packed(source.part(21, source.size - 21), zlib.decompressobj, True, where, depth)
        for magic, name in ((_LZ4, "lz4"), (_ZSTD, "zstd"), (_SEVEN, "7z"), (_RAR, "rar")):
            if head.startswith(magic):
                machine = decompressor(name)
                if machine is not None:
                    return self._packed(source, machine, True, where, depth)
                self.kinds[name] = None
                text = f"it is packed with {name}, which cannot be looked into here; unpack it first"
                self._saw("file-packed", "unknown", text, where)
                return name
        if head[257:262] == b"ustar" or _is_old_tar(head):
            self._tar(source, where, depth)
            return "tar"
        return None

    def _packed(self, source: Source, make: Callable[[], Any], certain: bool, where: str, depth: int) -> Optional[str]:
        inner, fault = zip_entries.unpacked(source, make, self._budget)
        if not inner.size and not certain:
            return None  # it only begins as if it were
        self.kinds["packed"] = None
        if fault:  # loaders notice it after what they have read, or never
            self._saw("file-packed", "unknown", f"it cannot be unpacked to its end ({fault})", where)
        self.look(inner, where, depth + 1)
        return "packed"

    def _model(self, head: bytes, source: Source, where: str) -> Optional[str]:
        if models.is_safetensors(source):
            self.kinds["safetensors"] = None
            end, faults = models.safetensors_end(source)
            self.sights += [fault._replace(where=where) for fault in faults]
            if end < source.size and not faults:
                self._saw("file-polyglot", "unknown", f"{source.size - end:,} bytes stand behind its tensors", where)
                self.look(source.part(end, source.size - end), where, 1)
            return "safetensors"
        for magic, name, sights in ((_GGUF, "gguf", models.gguf_sights), (_HDF5, "hdf5", models.hdf5_sights)):
            if head.startswith(magic):
                return self._by(name, sights, source, where)
        if any(source.at(begin, len(_HDF5)) == _HDF5 for begin in _HDF5_BEGINS):
            return self._by("hdf5", models.hdf5_sights, source, where)
        if head.startswith(_NUMPY):
            self._numpy(head, source, where)
            return "numpy"
        if models.is_onnx(source):
            return self._by("onnx", models.onnx_sights, source, where)
        if head.startswith(b"\x08\x01\x12"):
            return self._by("tensorflow", models.tensorflow_sights, source, where)
        return None

    def _by(self, name: str, sights: Callable[[Source, str], Iterator[Sight]], source: Source, where: str) -> str:
        self.kinds[name] = None
        try:
            for sight in sights(source, where):
                self._add(sight)
        except ValueError as error:
            self._saw(f"model-{name}-header", "unknown", f"it begins as {name} and cannot be read: {error}", where)
        return name

    def _zip(self, source: Source, where: str, depth: int) -> bool:
        """Look at the entries of an archive; return whether there were any."""
        self.kinds["zip"] = None
        names = []
        found: list[zip_entries.ZipEntry] = []
        fault: Optional[Exception] = None
        try:
            for entry in zip_entries.entries(source):
                found.append(entry)
        except (ValueError, TooMuch) as error:
            fault = error
        for entry in sorted(found, key=lambda entry: entry.packed):  # small ones first: what is too large hides none
            names.append(entry.name)
            self._entry(source, entry, where, depth)
        if isinstance(fault, TooMuch):
            raise fault
        if fault is not None and not names:
            self._saw("file-broken", "unknown", f"it begins as a zip archive and cannot be read: {fault}", where)
        if any(name.endswith(".data/extern_modules") for name in names):
            text = "it is a torch.package: it brings Python along, which is imported"
            self._saw("model-torch-package", "unknown", text, where)
        if any("/aotinductor/" in name and name.endswith(".so") for name in names):
            text = "it brings a compiled library along, which is loaded"
            self._saw("model-torch-package", "unknown", text, where)
        if any(name.rpartition("/")[0].endswith("code") or "/code/__torch__" in name for name in names):
            self._saw("model-torchscript", "warn", "it is TorchScript: a program, which runs when it is called", where)
        return bool(names)

    def _entry(self, source: Source, entry: zip_entries.ZipEntry, where: str, depth: int) -> None:
        inside = f"{where}/{entry.name}" if where else entry.name
        if not entry.named:
            self._saw(
                "file-hidden-entry", "unknown", "its archive has an entry that its directory does not name", inside
            )
        try:
            content = zip_entries.content(source, entry, self._budget)
        except BudgetSpent:
            raise
        except (ValueError, TooMuch) as error:
            self._saw("file-too-much" if isinstance(error, TooMuch) else "file-packed", "unknown", str(error), inside)
            return
        # The entries of an archive that another one holds as it is are found by the directories of both.
        place = (content.in_file(), content.size)
        if place[0] is None or place not in self._entries:
            self._entries.add(place)
            self.look(content, inside, depth + 1)

    def _tar(self, source: Source, where: str, depth: int) -> None:
        self.kinds["tar"] = None
        try:
            with tarfile.open(fileobj=source.file(), mode="r:", errorlevel=0) as archive:
                for member in archive:
                    inside = f"{where}/{member.name}" if where else member.name
                    target = member.linkname if member.issym() or member.islnk() else member.name
                    if target.startswith("/") or ".." in target.split("/"):
                        self._saw(
                            "file-leads-out",
                            "block",
                            f"it writes or points outside of where it is unpacked: {target[:120]!r}",
                            inside,
                        )
                    if member.isreg():
                        self.look(source.part(member.offset_data, member.size), inside, depth + 1)
        except (tarfile.TarError, ValueError, EOFError, OSError) as error:
            self._saw(
                "file-broken", "unknown", f"it begins as a tar archive and cannot be read to its end: {error}", where
            )

    def _numpy(self, head: bytes, source: Source, where: str) -> None:
        self.kinds["numpy"] = None
        wide = head[6] >= 2
        size = int.from_bytes(source.at(8, 4 if wide else 2), "little")
        begin = 12 if wide else 10
        try:
            header = ast.literal_eval(source.at(begin, min(size, 1 << 20)).decode("latin1").strip())
            kind = str(header["descr"])
        except (ValueError, SyntaxError, KeyError, TypeError, RecursionError):
            self._saw("file-broken", "unknown", "it begins as a numpy array and its header cannot be read", where)
            return
        if "O" in kind:
            self._pickles(source.part(begin + size, source.size), where, certain=True, depth=1)

    def _pickles(self, source: Source, where: str, certain: bool, depth: int) -> bool:
        """Run what may be a pickle; return whether it was one."""
        was_one = False
        for number, stream in enumerate(streams(source)):
            judged = [(f"{module}.{name}", self._severity(module, name, where)) for module, name in stream.names]
            named = [severity for name, (_, severity) in zip(stream.names, judged) if is_name(*name)]
            one = stream.end is not None and (certain or number > 0 or bool(named) or source.size == stream.end)
            acts = "block" in named or (bool(named) and stream.calls > 0)
            if not (one or acts or (certain and not number and (named or _looks_whole(stream)))):
                if number == 0 and stream.end is not None:
                    continue  # it may be a number before a pickle, as in PyTorch's older files
                return was_one
            was_one = True
            self.kinds["pickle"] = None
            self._tell(stream, judged, where, behind=number > 0)
            for nested in stream.nested:
                self.look(BytesSource(nested), where, depth + 1)
        return was_one

    def _deflated(self, source: Source, where: str, depth: int) -> None:
        """Look into what is nothing but deflated, without any header: where it is, it comes to its end."""
        if source.size > _FIRST_BYTES:
            return
        inner, fault = zip_entries.unpacked(source, lambda: zlib.decompressobj(-15), self._budget)
        if inner.size > 1 and not fault:
            self.look(inner, where, depth + 1)

    def _hidden(self, source: Source, where: str) -> None:
        """Look for pickles that begin anywhere in the first 64 MiB and call what does harm; those of which nobody knows are none."""
        for begin in islice(_hidden_begins(source), _MOST_HIDDEN):
            stream = next(streams(source.part(begin, source.size - begin)))
            judged = [(".".join(name), self._severity(*name, where)) for name in stream.names if is_name(*name)]
            if stream.calls and any(severity == "block" for _, severity in judged):
                self.kinds["pickle"] = None
                self._tell(stream, judged, where, behind=True)

    def _severity(self, module: str, name: str, where: str) -> str:
        if module.startswith("__torch__") and "/" in where:
            return "clean"  # a class of the TorchScript in the same archive
        return self._known.in_pickle(module, name)

    def _tell(self, stream: PickleStream, judged: list[tuple[str, str]], where: str, *, behind: bool) -> None:
        for full, severity in judged:
            if severity == "block":
                self._saw(
                    "model-pickle-call",
                    "block",
                    f"loading it looks up {full[:120]}, by which it can do anything",
                    where,
                )
            elif severity == "unknown":
                self._saw(
                    "model-pickle-name",
                    "unknown",
                    f"loading it looks up {full[:120]}, which is not known to be harmless",
                    where,
                )
        for full in stream.unseen:
            text = f"loading it uses {full} in a way whose effect cannot be seen here"
            self._saw("model-pickle-call", "unknown", text, where)
        if stream.fault and not behind:
            self._saw("model-pickle-broken", "unknown", f"what comes behind cannot be seen: {stream.fault}", where)

    def _saw(self, rule: str, severity: str, text: str, where: str) -> None:
        self._add(Sight(rule, severity, text, where))

    def _add(self, sight: Sight) -> None:
        """Keep a sight; of very many those that are worse."""
        if sight in self.sights:
            return
        if len(self.sights) < _MOST_SIGHTS or (
            sight.severity == "block" and not any(one.severity == "block" for one in self.sights)
        ):
            self.sights.append(sight)


def _hidden_begins(source: Source) -> Iterator[int]:
    """Yield where a pickle that names what does harm may begin."""
    for found in _HIDDEN_TEXT.finditer(source.at(0, _TEXT_HEADER)):
        yield found.start()
    for offset, piece in source.part(0, _FIRST_BYTES).chunks(overlap=_HIDDEN_BYTES):
        for found in _HIDDEN.finditer(piece):
            yield offset + found.start()


def _looks_whole(stream: PickleStream) -> bool:
    """Return whether a file that begins as a pickle, and looks up nothing, is one all the same: it was cut off, or names a class by its number."""
    return stream.fault == "it is cut off" or any(
        word in stream.fault for word in ("memory", "deeply", "extension code")
    )


def _is_old_tar(head: bytes) -> bool:
    """Return whether it is a tar archive of before POSIX, by the check sum of its first header."""
    if len(head) < 512:
        return False
    try:
        stated = int(head[148:156].strip(b"\0 ") or b"x", 8)
    except ValueError:
        return False
    return stated == sum(head[:148]) + 8 * 32 + sum(head[156:512]) and bool(head[0])


def _text(head: bytes, source: Source) -> Optional[str]:
    """Return the text that a file is, None if it is none or is very long."""
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if (b"\0" in head and not wide) or source.size > LIMIT_BYTES:
        return None
    try:
        return source.at(0, source.size).decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        return None
