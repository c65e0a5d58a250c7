"""Facts of a group's devices on their way into telemetry: told when they change, not with every sample."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from cordee.telemetry.node.blocklog import encode_facts
from cordee.telemetry.node.samplers._base import FIRST, Sampler


class DeviceFacts:
    """What has been told of one group on one node.

    A reason for a missing metric is told once it holds for two samples, so that what only a first sample lacks is not.

    Args:
        node: the node's name.
        group: `gpu`, `node` or `rank`.
    """

    def __init__(self, node: str, group: str) -> None:
        self._node = node
        self._group = group
        self._devices: dict[str, dict[str, Any]] = {}
        self._missing: dict[str, str] = {}
        self._last_missing: dict[str, str] = {}
        self._remarks: list[str] = []

    def news(
        self,
        sampler: Sampler,
        moment: float,
        more: Mapping[str, Mapping[str, Any]] = {},
        remarks: Sequence[str] = (),
    ) -> bytes:
        """Return a FACTS record of what has changed since the last call; empty when nothing has.

        Args:
            sampler: which has just taken a sample.
            moment: UTC epoch seconds of the sample.
            more: facts of devices that the sampler does not know.
            remarks: sentences that the reader of the samples should know.
        """
        about = {device: {**known, **more.get(device, {})} for device, known in sampler.facts().items()}
        return self.changed(about, sampler.missing, moment, remarks)

    def changed(
        self,
        devices: Mapping[str, Mapping[str, Any]],
        missing: Mapping[str, str],
        moment: float,
        remarks: Sequence[str] = (),
    ) -> bytes:
        """Return a FACTS record of what of this has not been told; empty when all has."""
        news: dict[str, dict[str, Any]] = {}
        for device, about in devices.items():
            told = self._devices.setdefault(device, {})
            fresh = {key: value for key, value in about.items() if key not in told or told[key] != value}
            if fresh:
                told.update(fresh)
                news[device] = fresh
        lasting = {name: why for name, why in missing.items() if self._last_missing.get(name) == why and why != FIRST}
        reasons = {name: why for name, why in lasting.items() if self._missing.get(name) != why}
        reasons.update({name: "" for name in self._missing if name not in missing})
        self._last_missing = dict(missing)
        for name, why in reasons.items():
            if why:
                self._missing[name] = why
            else:
                del self._missing[name]
        said = [remark for remark in dict.fromkeys(remarks) if remark not in self._remarks]
        self._remarks += said
        if not (news or reasons or said):
            return b""
        return encode_facts(self._node, self._group, moment, news, reasons, said)
