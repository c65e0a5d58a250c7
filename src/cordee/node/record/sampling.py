"""One source as records of the block log: its schemas, its samples, and what is to be known of them."""

from __future__ import annotations

import time
from typing import Any, Optional

from cordee.node.samplers._base import Sampler
from cordee.runs.blocklog import encode_facts, encode_grid, encode_schema

_FACTS_EVERY_S = 30.0


class Sampling:
    """A sampler whose samples become records.

    Why a metric is missing is told when it has been so for two samples (rates always miss the first), and taken back
    when it is there again.

    Args:
        node: the node's name.
        group: `gpu`, `node` or `rank`.
        sampler: what is asked.
        cadence_s: seconds between samples.
    """

    def __init__(self, node: str, group: str, sampler: Sampler, cadence_s: float) -> None:
        self.group = group
        self.sampler = sampler
        self._node = node
        self._cadence_s = cadence_s
        self._schemas: set[int] = set()
        self._facts: dict[str, dict[str, Any]] = {}
        self._facts_due = 0.0
        self._before: dict[str, str] = {}
        self._told: dict[str, str] = {}

    def take(self, moment: Optional[float] = None) -> bytes:
        """Take one sample and return its records; empty when there was nothing to ask about.

        Args:
            moment: UTC epoch seconds of the sample; now.
        """
        values = self.sampler.sample()
        moment = time.time() if moment is None else moment
        devices = self.sampler.devices()
        if not devices:
            return b""
        schema, encoded = encode_schema(self._node, self.group, self._cadence_s, devices, self.sampler.metrics(), None)
        records = b""
        due = schema not in self._schemas or time.monotonic() >= self._facts_due
        facts = self._news() if due else {}
        missing = self._missing()
        if facts or missing:
            records = encode_facts(self._node, self.group, moment, facts, missing)
        if schema not in self._schemas:
            self._schemas.add(schema)
            records += encoded
        return records + encode_grid(schema, moment, values)

    def last_words(self) -> bytes:
        """Return the record of what was missing in the only sample there was."""
        late = {name: reason for name, reason in self._before.items() if name not in self._told}
        return encode_facts(self._node, self.group, time.time(), {}, late) if late else b""

    def _news(self) -> dict[str, dict[str, Any]]:
        self._facts_due = time.monotonic() + _FACTS_EVERY_S
        facts = self.sampler.facts()
        news = {device: about for device, about in facts.items() if self._facts.get(device) != about}
        self._facts.update(news)
        return news

    def _missing(self) -> dict[str, str]:
        now = dict(self.sampler.missing)
        news = {name: reason for name, reason in now.items() if name in self._before and self._told.get(name) != reason}
        news.update((name, "") for name in self._told if name not in now and self._told[name])
        self._told.update(news)
        self._before = now
        return news
