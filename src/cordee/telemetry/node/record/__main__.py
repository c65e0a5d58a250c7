"""`python -m cordee.telemetry.node.record [options] -- CMD...`: `cordee record` where only the node side is there."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn, Optional, Sequence

from cordee.core.errors import CordeeError
from cordee.runs.folder import say
from cordee.telemetry.node.record.options import EXIT_OURS, RecordOptions, checked_source, parse_interval
from cordee.telemetry.node.record.run import run


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        say(f"cordee: {message}\n  next:    python -m cordee.telemetry.node.record --help")
        sys.exit(EXIT_OURS)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Record a command and return its exit code, if this process does not become it."""
    parser = _Parser(
        prog="python -m cordee.telemetry.node.record", description="Sample a command; see `cordee record --help`."
    )
    parser.add_argument("-o", "--output", metavar="DIR")
    parser.add_argument("--interval", default="1s", metavar="TIME")
    parser.add_argument("--source", default="auto", metavar="SOURCE")
    parser.add_argument("--threads", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--bind", choices=("gpu", "none"), default="none")
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD...")
    given = vars(parser.parse_args(arguments))
    as_json = given.pop("as_json")
    argv = given.pop("argv")
    try:
        options = RecordOptions(
            argv=tuple(argv[1:] if argv[:1] == ["--"] else argv),
            interval_s=parse_interval(given.pop("interval")),
            source=checked_source(given.pop("source")),
            **given,
        )
        return run(options, as_json=as_json)
    except CordeeError as error:
        say(f"cordee: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
