"""`cordee profile`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from cordee.core.errors import EXIT_BAD, EXIT_DONE, CordeeError, UsageError
from cordee.core.terminal.output import print_json
from cordee.job.terminal.options import duration, json_option, runs_option
from cordee.job.terminal.run_args import found, run_argument, state_of
from cordee.runs.folder import RunFolder
from cordee.systems.explain.traces.views import profile_document, window_text

# What the supervisor may need to see the request, what it takes until all has arrived, and how long a tool looks by default.
_SEEN_S, _MORE_S, _TOOL_S, _POLL_S = 30.0, 30.0, 5.0, 0.2
_MOST_STEPS, _MOST_S = 1000, 600.0
_OPENED = {
    "torch": "open it at https://ui.perfetto.dev or chrome://tracing; it stays on your machine",
    "py-spy": "open it at https://www.speedscope.app; it stays on your machine",
    "perf": "open it at https://ui.perfetto.dev or https://profiler.firefox.com, or read it with zless",
    "rocprof": "gunzip it, and open it at https://ui.perfetto.dev; it stays on your machine",
    "nsys": "",
}


@click.command()
@run_argument
@click.option("--ranks", default="0", show_default=True, metavar="R,R-R", help="Which ranks, 64 at most.")
@click.option(
    "--steps", type=click.IntRange(1, _MOST_STEPS), help="How many steps of the optimizer; 5 if nothing is said."
)
@click.option("--seconds", type=click.FloatRange(0.1, _MOST_S), help="For so long, instead of steps.")
@click.option("--tool", type=click.Choice(sorted(_OPENED)), default="torch", show_default=True, help="What looks.")
@click.option(
    "--with",
    "extras",
    type=click.Choice(["shapes", "stacks", "memory"]),
    multiple=True,
    help="What torch.profiler records, too; costs more.",
)
@click.option("--wait", default="5m", show_default=True, help="Give up when it takes longer than this.")
@runs_option
@json_option
def command(
    run: str,
    ranks: str,
    steps: int | None,
    seconds: float | None,
    tool: str,
    extras: tuple[str, ...],
    wait: str,
    runs: str | None,
    as_json: bool,
) -> None:
    """Trace some steps of ranks of a run that goes on, with no change of its script.

    The trace begins at the next step and is written into the run's folder. Before and after, nothing of it is in the ranks.

    \b
    Example:
      cordee profile last --ranks 0,7 --steps 5
      cordee profile last --ranks 3 --tool py-spy --seconds 10
    """
    from cordee.core.draw.clean import one_line
    from cordee.core.units import format_size
    from cordee.wire.pulse import EXTRAS

    if steps is not None and (seconds is not None or tool != "torch"):
        given = f"--steps {steps} and " + (f"--seconds {seconds:g}" if seconds is not None else f"--tool {tool}")
        raise UsageError("only torch knows steps, and only instead of seconds", given=given, next="leave out --steps")
    if extras and tool != "torch":
        raise UsageError("only torch records more than usual", given=f"--with {extras[0]} and --tool {tool}")
    if seconds is None:
        seconds = 0.0 if tool == "torch" else _TOOL_S
    wait_s = duration(wait, "--wait")
    if not seconds + 10 <= wait_s <= 24 * 3600:
        raise UsageError("--wait does not fit", given=wait, allowed="10 s more than --seconds, and a day at most")
    folder, wanted = found(run, runs), _ranks(ranks)
    state = state_of(folder).state
    if state != "running":
        raise UsageError("only a run that goes on can be profiled", given=f"{folder.id}: {state}", next="cordee run")
    request = {
        **{"request": "profile", "id": secrets.token_hex(8), "ranks": wanted, "tool": tool},
        **{"steps": 0 if seconds else steps or 5, "seconds": seconds, "wait_s": wait_s},
        "extras": sum(EXTRAS[name] for name in set(extras)),
    }
    said: dict[Any, str] = {}

    def progress(told: dict[str, Any]) -> None:
        for about in told["ranks"]:
            words = " ".join(str(about.get(key) or "") for key in ("state", "text")).strip()
            if said.get(about["rank"]) != words and not as_json and not told["error"]:
                said[about["rank"]] = words
                click.echo(f"rank {about['rank']}: {one_line(words)}", err=True)

    path, told = _followed(folder, request, wait_s, progress)
    files = [about for about in told["ranks"] if about["state"] == "written"]
    if as_json:
        traces = [{**about, "path": str(path.parent / about["file"])} for about in files]
        missing = [about for about in told["ranks"] if about["state"] != "written"]
        print_json({**told, "schema": "cordee.profile/1", "traces": traces, "missing": missing})
    else:
        for about in files:
            window = f"{text}  " if (text := window_text(about)) else ""
            click.echo(f"rank {about['rank']}  {window}{format_size(about['bytes'])}  {path.parent / about['file']}")
        for note in told["notes"]:
            click.echo(one_line(f"note: {note}"), err=True)
        if files:
            click.echo(_OPENED[tool])
    raise click.exceptions.Exit(EXIT_DONE if len(files) == len(wanted) else EXIT_BAD)


def _ranks(given: str) -> list[int]:
    """Return the ranks that `0,4-7` names.

    Raises:
        UsageError: it is no such list.
    """
    named: set[int] = set()
    for part in given.split(","):
        low, _, high = (word.strip() for word in part.partition("-"))
        if not (low.isdecimal() and (high or low).isdecimal()) or not 0 <= int(high or low) - int(low) < 64:
            raise UsageError("--ranks names no ranks", given=given, allowed="64 at most, as 0,4-7")
        named.update(range(int(low), int(high or low) + 1))
    if len(named) > 64:
        raise UsageError("too many ranks are to be profiled at once", given=given, allowed="64 at most")
    return sorted(named)


def _followed(
    folder: RunFolder, request: dict[str, Any], wait_s: float, progress: Callable[[dict[str, Any]], None]
) -> tuple[Path, dict[str, Any]]:
    """Ask for a profile and return where its document lies and what that says, once it is over.

    Raises:
        CordeeError: nobody answers, or there can be none.
    """
    from cordee.job.terminal.requests import leave_request

    leave_request(folder, request)
    path, asked_at = None, time.monotonic()
    while time.monotonic() < asked_at + (_SEEN_S if path is None else wait_s + _MORE_S):
        time.sleep(_POLL_S)
        path = path or _own(folder, request["id"])
        told = profile_document(path) if path is not None else None
        if path is not None and told is not None:
            progress(told)
            if told["error"]:
                _refused(folder, str(told["error"]))
            if told["over"]:
                return path, told
        elif state_of(folder).state != "running":
            _refused(folder, "the run has ended")
    what = "told nothing more" if path else "not answered"
    return _refused(folder, f"the run's supervisor has {what}")


def _refused(folder: RunFolder, why: str) -> NoReturn:
    raise CordeeError(
        f"there is no profile: {why}",
        given=folder.id,
        allowed="a run whose ranks run, in a folder with room",
        next=f"look at `cordee show {folder.id}` and {folder.control}/supervisor.log, and try again",
    )


def _own(folder: RunFolder, identifier: str) -> Path | None:
    """Return where the document lies that answers a request; None while there is none."""
    for path in sorted((folder.root / "profiles").glob("*/profile.json"), reverse=True):
        if (profile_document(path) or {}).get("id") == identifier:
            return path
    return None
