"""Reads a request on standard input and writes one JSON line per finished check: what is stuck leaves the others' results."""

from __future__ import annotations

import json
import sys

from cordee.errors import CordeeError
from cordee.node.checks import run_checks


def main() -> int:
    """Run the checks; exit code 2 when the request is wrong."""
    try:
        for result in run_checks(json.load(sys.stdin)):
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()
    except (CordeeError, ValueError, KeyError) as error:
        print(f"cordee checks: {error}", file=sys.stderr)
        return 2
    return 0


sys.exit(main())
