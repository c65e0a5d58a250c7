"""One source as records of the block log: its schemas, its samples, and what is to be known of them."""

from __future__ import annotations

from typing import Optional, Union

from cordee.telemetry.node.blocklog import encode_grid, encode_schema
from cordee.telemetry.node.samplers._base import Sampler
from cordee.telemetry.node.samplers.device_facts import DeviceFacts


class RecordedSampler:
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
        self._described: Optional[tuple[list[Union[str, int]], list[dict[str, str]]]] = None
        self._schema = 0
        self._told = DeviceFacts(node, group)

    def take(self, moment: float) -> bytes:
        """Take one sample and return its records; empty when there was nothing to ask about.

        Args:
            moment: UTC epoch seconds of the sample.
        """
        values = self.sampler.sample()
        devices = self.sampler.devices()
        if not devices:
            return b""
        described = (devices, self.sampler.metrics())
        records = b""
        if described != self._described:
            self._described = described
            self._schema, records = encode_schema(self._node, self._group, self._cadence_s, *described, None)
        records += encode_grid(self._schema, moment, values)
        return records + self._told.news(self.sampler, moment)
