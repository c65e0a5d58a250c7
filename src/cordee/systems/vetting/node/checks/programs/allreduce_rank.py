"""One rank of the program `allreduce`."""

from __future__ import annotations

from cordee.machine.probes.common import serve
from cordee.systems.vetting.node.checks.programs.allreduce import run_rank


def main() -> None:
    """Answer one request of `allreduce`."""
    serve(run_rank)
