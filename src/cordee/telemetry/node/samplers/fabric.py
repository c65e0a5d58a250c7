"""Traffic of InfiniBand and Slingshot adapters, which IP's counters do not show."""

from __future__ import annotations

import glob
import os
from typing import Any, Optional, Union

from cordee.machine.files import KernelFile
from cordee.telemetry.node.catalogue import described
from cordee.telemetry.node.samplers._base import FIRST, NAN, CounterGrowth, Sampler, rate

# InfiniBand counts words of four bytes (the specification's PortRcvData and PortXmitData).
_WORD_BYTES = 4
_DIRECTIONS = ("receive", "transmit")


class FabricSampler(Sampler):
    """Bytes of all ports of a node's adapters.

    Sources: `port_rcv_data` and `port_xmit_data` of /sys/class/infiniband, `hni_sts_rx_ok_octets` and
    `hni_sts_tx_ok_octets` of /sys/class/cxi (`value@time`).

    Args:
        node: the node's name.
        sys: where /sys is.
    """

    def __init__(self, node: str, sys: str = "/sys") -> None:
        super().__init__()
        self._node = node
        self._growth = CounterGrowth()
        found = [(f"{sys}/class/infiniband/*/ports/*/counters", ("port_rcv_data", "port_xmit_data"), _WORD_BYTES)]
        found += [(f"{sys}/class/cxi/*/device/telemetry", ("hni_sts_rx_ok_octets", "hni_sts_tx_ok_octets"), 1)]
        self._ports = [
            (tuple(KernelFile(os.path.join(folder, name)) for name in names), bytes_each)
            for pattern, names, bytes_each in found
            for folder in sorted(glob.glob(pattern))
        ]
        kinds = {pattern.split("/class/", 1)[1].split("/")[0] for pattern, _, _ in found if glob.glob(pattern)}
        source = ", ".join(f"sys/class/{kind}" for kind in sorted(kinds))
        self._metrics = [described(f"fabric_{direction}_bytes_per_second", source) for direction in _DIRECTIONS]

    def probe(self) -> Optional[str]:
        """Return why there is no fabric to measure, or None."""
        return None if self._ports else "this node shows no InfiniBand or Slingshot adapter"

    def metrics(self) -> list[dict[str, str]]:
        """Return the two metrics of the fabric."""
        return self._metrics

    def devices(self) -> list[Union[str, int]]:
        """Return the node's name."""
        return [self._node]

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return how many ports are counted."""
        return {self._node: {"fabric_ports": len(self._ports)}}

    def sample(self) -> list[float]:
        """Return both rates, summed over the ports that were there at both times and were not reset."""
        self.missing = {}
        self._growth.tick()
        values = []
        for direction, name in enumerate(_DIRECTIONS):
            sums: Optional[float] = None
            reason = FIRST
            for files, bytes_each in self._ports:
                file = files[direction]
                count = _count(file.read(64))
                grown = self._growth.of(file.path, count)
                reason = reason if count is not None else file.reason or f"{file.path} holds no number"
                if grown is not None:
                    sums = (sums or 0.0) + grown * bytes_each
            value = rate(sums, self._growth.elapsed_s)
            if value != value:
                self.missing[f"fabric_{name}_bytes_per_second"] = reason
                value = NAN
            values.append(value)
        return values

    def close(self) -> None:
        """Close the files."""
        for files, _ in self._ports:
            for file in files:
                file.close()


def _count(content: Optional[bytes]) -> Optional[float]:
    number = (content or b"").partition(b"@")[0].strip()
    return float(number) if number.isdigit() else None
