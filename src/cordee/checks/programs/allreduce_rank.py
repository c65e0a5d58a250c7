"""One rank of the program `allreduce`."""

from __future__ import annotations

from cordee.checks.programs.allreduce import run_rank
from cordee.checks.programs.common import serve


def main() -> None:
    """Answer one request of `allreduce`."""
    serve(run_rank)
