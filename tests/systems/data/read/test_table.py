"""Samples as columns."""

from __future__ import annotations

import numpy

from cordee.systems.data.node.read.batches.collate import columns
from cordee.systems.data.node.read.batches.columns import SampleTable


def made():
    return SampleTable({"jpg": [b"a", b"bc", b""], "label": numpy.array([4, 5, 6]), "key": ["x", "y", "z"]})


def test_a_table_is_a_sequence_of_samples():
    table = made()
    samples = [
        {"jpg": b"a", "label": 4, "key": "x"},
        {"jpg": b"bc", "label": 5, "key": "y"},
        {"jpg": b"", "label": 6, "key": "z"},
    ]
    assert len(table) == 3
    assert list(table) == [table[0], table[1], table[2]] == samples
    assert {type(sample["label"]) for sample in table} == {int} == {type(table[place]["label"]) for place in range(3)}
    assert list(table[1:]) == samples[1:]
    assert table[-1] == samples[-1]
    assert list(table[::2]) == samples[::2]


def test_a_batch_of_it_is_what_a_batch_of_its_samples_would_be():
    table = made()
    batch, other = columns(table), columns(list(table))
    assert list(batch) == list(other)
    assert batch["jpg"] == other["jpg"] == [b"a", b"bc", b""]
    assert batch["key"] == other["key"]
    assert batch["label"].dtype == other["label"].dtype
    assert (batch["label"] == other["label"]).all()
