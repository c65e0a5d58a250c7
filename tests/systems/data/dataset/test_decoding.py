"""`decode=`: by the field's name, by the user's functions; pictures in threads."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import numpy
import pytest
from PIL import Image

import cordee
from cordee.core.errors import DataError, UsageError
from cordee.systems.data.node.read._base import SampleSource
from cordee.systems.data.node.read.batches.decoding import decoder
from cordee.systems.data.node.read.counters import ReadCounts


class Pictures(SampleSource):
    """Samples of a PNG, a JSON text and bytes nobody knows; picture 13 is cut off when `broken`."""

    def __init__(self, size: int = 20, broken: bool = False) -> None:
        self.name, self.size, self.identity, self.counts = "pictures", size, f"pictures-{size}", ReadCounts()
        self._broken = broken

    def read(self, samples: Any) -> list[Any]:
        return [self._sample(number) for number in samples.tolist()]

    def _sample(self, number: int) -> dict[str, Any]:
        file = io.BytesIO()
        Image.new("RGB", (6, 4), (number, 0, 255)).save(file, "png")
        data = file.getvalue()[: 20 if self._broken and number == 13 else None]
        return {"left.png": data, "json": json.dumps({"n": number}).encode(), "odd": b"\xff", "label": number}


def test_fields_are_decoded_by_their_names_in_threads():
    threads = set()

    def seen(sample):
        threads.add(threading.current_thread().name)
        return sample

    ds = cordee.dataset(Pictures(), batch=8, shuffle=False, decode="auto", transform=seen, threads=2)
    batch = next(iter(ds))
    assert batch["left.png"].shape == (8, 4, 6, 3)
    assert batch["left.png"].dtype == numpy.uint8
    assert batch["left.png"][5, 0, 0].tolist() == [5, 0, 255]
    assert batch["json"]["n"].tolist() == list(range(8))
    assert batch["odd"] == [b"\xff"] * 8
    assert threads <= {"cordee-decode-0", "cordee-decode-1"}


def test_one_field_can_be_decoded_and_the_others_stay_bytes():
    batch = next(iter(cordee.dataset(Pictures(), batch=8, shuffle=False, decode={"json": "auto", "odd": len})))
    assert batch["json"]["n"].tolist() == list(range(8))
    assert batch["odd"].tolist() == [1] * 8
    assert isinstance(batch["left.png"][0], bytes)


def test_a_picture_that_is_none_names_its_sample():
    with pytest.raises(DataError, match="could not be decoded") as caught:
        list(cordee.dataset(Pictures(broken=True), batch=8, decode="auto"))
    assert caught.value.given == "pictures[13]"


def test_what_decodes_nothing_is_refused():
    for value in ("jpeg", 5, {"odd": "auto"}, {"png": 5}):
        with pytest.raises(UsageError, match="decode"):
            decoder(value)
    assert decoder(None) is None
