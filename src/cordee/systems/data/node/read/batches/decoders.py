"""Decoders by the name of a field: pictures, JSON, numbers, texts, NumPy arrays; what nobody knows stays bytes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional

from cordee.core.errors import UsageError
from cordee.machine.foreign_files import parse_json

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

Decoder = Callable[[bytes], Any]
# Pictures of these kinds hold more than eight bits in each channel: they are not made RGB.
_DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")


def automatic(field: str) -> Optional[Decoder]:
    """Return what decodes a field, by what its name ends in (`jpg`, `left.jpg`); None: it stays bytes."""
    return DECODERS.get(field.rpartition(".")[2].lower())


def by_name(fields: Iterable[str]) -> "dict[str, Decoder]":
    """Return the decoders of those fields that have one."""
    found = {field: automatic(field) for field in fields}
    return {field: decoder for field, decoder in found.items() if decoder is not None}


def picture(data: bytes) -> "Array":
    """Return a picture as uint8[height, width, 3], red, green, blue; 16-bit and float pictures as they are, without a last axis.

    Read by Pillow, else by torchvision; both let other threads run meanwhile. EXIF's orientation is not applied.

    Raises:
        UsageError: neither is installed. Whatever the library raises for bytes that are no picture.
    """
    import numpy

    try:
        from PIL import Image
    except ImportError:
        return _picture_by_torchvision(data)
    with Image.open(io.BytesIO(data)) as opened:
        return numpy.asarray(opened if opened.mode in _DEEP_MODES else opened.convert("RGB"))


def text(data: bytes) -> str:
    """Return UTF-8 text."""
    return data.decode("utf-8")


def number(data: bytes) -> int:
    """Return an integer written in decimal digits."""
    return int(data)


def lines_of_json(data: bytes) -> list[Any]:
    """Return one value for each line that is not empty."""
    return [parse_json(line) for line in data.splitlines() if line.strip()]


def array(data: bytes) -> "Array":
    """Return an array of NumPy's format; one of Python objects is refused, because reading it runs code."""
    import numpy

    found: Array = numpy.load(io.BytesIO(data), allow_pickle=False)
    return found


def arrays(data: bytes) -> "dict[str, Array]":
    """Return the arrays of an NPZ file by name."""
    import numpy

    with numpy.load(io.BytesIO(data), allow_pickle=False) as opened:
        return dict(opened)


def _picture_by_torchvision(data: bytes) -> "Array":
    try:
        from torchvision.io import ImageReadMode, decode_image
    except ImportError:
        raise UsageError(
            "decoding pictures needs Pillow or torchvision, and neither is installed",
            allowed="Pillow: the extra cordee[images]",
            next="install one where the training runs, or give decode= a function of your own",
        ) from None
    import torch

    decoded = decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB)
    found: Array = decoded.permute(1, 2, 0).contiguous().numpy()
    return found


_PICTURES = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm", "pnm")
DECODERS: "dict[str, Decoder]" = {
    **dict.fromkeys(_PICTURES, picture),
    **dict.fromkeys(("cls", "index", "id", "count"), number),
    **dict.fromkeys(("txt", "text", "caption", "transcript"), text),
    "json": parse_json,
    "jsonl": lines_of_json,
    "npy": array,
    "npz": arrays,
}
