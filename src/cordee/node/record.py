"""The name by which batch scripts start `cordee.telemetry.node.record`."""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("cordee.telemetry.node.record", run_name="__main__", alter_sys=True)
