"""What `python -m support simulate` prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from cordee.core.errors import UsageError
from support.simulation.faults import KINDS
from support.simulation.meetings import meeting
from support.simulation.points import cases
from support.simulation.rules import PHASES
from support.simulation.seeds import SCHEMA, Campaign, Case, SimulationResult, case_of, resumed, shrunk, simulate


def run_campaign(
    seeds: str | None,
    nodes: int,
    faults: str | None,
    out: str | None,
    shrink: bool,
    trace: bool,
    as_json: bool,
    pairs: bool = False,
    phases: bool = False,
) -> bool:
    """Simulate seeds, or all that can befall a short run, and say what they came to; returns whether a rule was broken.

    Args:
        pairs: cases of `support.simulation.points`.
        phases: of `support.simulation.meetings`.

    Raises:
        UsageError: what was given makes no sense.
    """

    def failed(result: SimulationResult) -> None:
        _say(shrunk(result) if shrink else result, trace)

    done = Campaign()
    kinds = _kinds(faults)
    about: dict[str, Any] = {"nodes": nodes, "kinds": list(kinds)}
    numbers = _range(seeds or "0-200")
    case_at: Callable[[int], Case] = partial(case_of, nodes=nodes, kinds=kinds)
    if (pairs or phases) and (faults or nodes != 2 or (pairs and phases)):
        raise UsageError(
            "--pairs and --phases each have their own faults and nodes",
            allowed="one of them, with --seeds for some of its cases",
        )
    if phases:
        about, case_at = {"phases": len(PHASES) * len(KINDS)}, meeting
    if pairs:
        all_cases = cases()
        about, case_at = {"pairs": len(all_cases)}, all_cases.__getitem__
        numbers = range(len(all_cases))[slice(*(numbers.start, numbers.stop) if seeds else (None,))]
    path = Path(out) if out else None
    for done in resumed(path, numbers, case_at, about, failed):
        rate = done.seeds / max(done.cpu_s, 0.001)
        click.echo(
            f"\r{done.seeds} seeds, {rate:.1f} a CPU second, {len(done.broken)} rules broken  ", nl=False, err=True
        )
    click.echo(err=True)
    if as_json:
        sys.stdout.write(json.dumps({"schema": SCHEMA, "nodes": nodes, **done.document()}, indent=2) + "\n")
    else:
        _say_campaign(done)
    return bool(done.broken)


def replay_case(case_file: str, shrink: bool, trace: bool, as_json: bool) -> bool:
    """Simulate one case that was printed before; returns whether it breaks a rule.

    Raises:
        UsageError: it is not one.
    """
    text = sys.stdin.read() if case_file == "-" else Path(case_file).read_text()
    try:
        case = Case.from_document(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            "this is no case of a simulation", given=f"{case_file}: {error}", allowed="JSON as printed"
        ) from error
    result = simulate(case)
    if result.violations and shrink:
        result = shrunk(result)
    if as_json:
        document = {"schema": SCHEMA, **result.case.document(), "end": result.end, "trace": result.trace}
        sys.stdout.write(json.dumps({**document, "violations": result.violations}, indent=2) + "\n")
    else:
        _say(result, trace)
    return bool(result.violations)


def _range(text: str) -> range:
    first, dash, stop = text.partition("-")
    try:
        return range(int(first), int(stop) if dash else int(first) + 1)
    except ValueError:
        raise UsageError("these are no seeds", given=text, allowed="7, or 0-1000") from None


def _kinds(text: str | None) -> tuple[str, ...]:
    given = tuple(text.split(",")) if text else KINDS
    wrong = [kind for kind in given if kind not in KINDS]
    if wrong:
        raise UsageError("there is no such kind of fault", given=wrong[0], allowed=list(KINDS))
    return given


def _say(result: SimulationResult, trace: bool) -> None:
    click.echo(err=True)
    if trace:
        for second, text in result.trace:
            click.echo(f"{second:10.4f}  {text}", err=True)
    click.echo(f"seed {result.case.seed}: {result.end} after {result.virtual_s:.0f} virtual seconds", err=True)
    for fault in result.case.faults:
        click.echo(f"  {fault}", err=True)
    for rule, seen in result.violations:
        click.echo(f"  broken: {rule}: {seen}", err=True)
    if result.violations:
        click.echo(f"  again with --case: {json.dumps(result.case.document())}", err=True)


def _say_campaign(done: Campaign) -> None:
    click.echo(
        f"{done.seeds} seeds, {done.seeds / max(done.cpu_s, 0.001):.1f} a CPU second, "
        f"{done.virtual_s / 3600:.1f} virtual hours; ended: "
        + ", ".join(f"{end} {count}" for end, count in done.ends.most_common())
    )
    phases = [phase for phase in PHASES if any(met == phase for _, met in done.met)]
    click.echo("faults met      " + "".join(f"{phase:>9}" for phase in phases))
    for kind in KINDS:
        counts = [done.met[kind, phase] for phase in phases]
        if any(counts):
            click.echo(f"{kind:<16}" + "".join(f"{count:>9}" for count in counts))
    for rule, seeds in sorted(done.broken.items()):
        click.echo(f"broken: {rule}: {len(seeds)} seeds, the first {seeds[0]}")
