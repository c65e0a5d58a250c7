"""Reads a JSON request on standard input and writes one JSON line per finished check on standard output."""

from __future__ import annotations

import json
import sys
from typing import Any

from cordee.core.errors import CordeeError, UsageError
from cordee.systems.vetting.node.checks.check_processes import run


def main() -> int:
    """Run the request; exit codes are those of `cordee.core.errors`."""
    try:
        try:
            request = json.load(sys.stdin)
        except ValueError as error:
            raise UsageError(f"the request is not JSON: {error}") from None
        run(request, on_result=_say)
    except CordeeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _say(result: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
