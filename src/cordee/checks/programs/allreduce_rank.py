"""One rank of the program `allreduce`."""

from __future__ import annotations

from cordee.checks.programs.allreduce import run_rank
from cordee.hardware.probes.common import serve


def main() -> None:
    """Answer one request of `allreduce`."""
    serve(run_rank)
