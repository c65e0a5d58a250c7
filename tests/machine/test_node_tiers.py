"""The places of a node: looked at before each save of a training, for weeks."""

from __future__ import annotations

import os

from cordee.machine.node_tiers import tiers


def test_looks_leave_no_file_open():
    def looked():
        for _ in range(20):
            tiers(())
        return len(os.listdir("/proc/self/fd"))

    assert looked() == looked()
