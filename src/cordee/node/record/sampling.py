"""One source as records of the block log: its schemas, its samples, and what is to be known of them."""

from __future__ import annotations

from cordee.node.samplers._base import Sampler
from cordee.node.samplers.told import ToldFacts
from cordee.runs.blocklog import encode_grid, encode_schema


class Sampling:
    """A sampler whose samples become records.

    Args:
        node: the node's name.
        group: `node` or `rank`.
        sampler: what is asked.
        cadence_s: seconds between samples.
    """

    def __init__(self, node: str, group: str, sampler: Sampler, cadence_s: float) -> None:
        self.sampler = sampler
        self._node = node
        self._group = group
        self._cadence_s = cadence_s
        self._schemas: set[int] = set()
        self._told = ToldFacts(node, group)

    def take(self, moment: float) -> bytes:
        """Take one sample and return its records; empty when there was nothing to ask about.

        Args:
            moment: UTC epoch seconds of the sample.
        """
        values = self.sampler.sample()
        devices = self.sampler.devices()
        if not devices:
            return b""
        schema, encoded = encode_schema(self._node, self._group, self._cadence_s, devices, self.sampler.metrics(), None)
        records = b"" if schema in self._schemas else encoded
        self._schemas.add(schema)
        records += encode_grid(schema, moment, values)
        return records + self._told.news(self.sampler, moment)
