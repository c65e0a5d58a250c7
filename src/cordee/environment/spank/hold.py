"""The name by which compiled plug-ins start `cordee.systems.environments.node.spank.hold`."""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("cordee.systems.environments.node.spank.hold", run_name="__main__", alter_sys=True)
