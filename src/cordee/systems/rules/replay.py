"""Rules judged on runs that are there: which rule holds where, and when. One run at a time, its journal and samples in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cordee.core.errors import CordeeError, RunFolderError
from cordee.core.units import utc_text
from cordee.runs.journal_follower import JournalFollower
from cordee.systems.rules.node.judge import RuleJudge, RuleMatch, RulePlace, in_bounds, rule_findings
from cordee.systems.rules.node.windows import place_of
from cordee.telemetry.store.reader import Run

if TYPE_CHECKING:
    import numpy as np

    from cordee.runs.folder import RunFolder
    from cordee.telemetry.store.gridread import GridSource

MOST_PLACES = 1000
_PIECE_VALUES = 4_000_000
_ENDS = ("ended",)


@dataclass
class HeldRule:
    """That a rule held in a run for one place: since when, until when, how often; `what` is why it did at first."""

    rule: Mapping[str, Any]
    run: str
    place: RulePlace
    first: float
    last: float
    times: int
    what: str
    value: float | None = None

    def document(self) -> dict[str, Any]:
        """Return it as `cordee rules run --json` tells it."""
        return {
            "rule": self.rule["id"],
            "run": self.run,
            "nodes": list(self.place.nodes),
            "ranks": list(self.place.ranks),
            "device": self.place.device or None,
            "first": utc_text(self.first),
            "last": utc_text(self.last),
            "times": self.times,
            "what": self.what,
            "value": self.value,
            "action": self.rule["action"],
            "next": self.rule["next"],
        }


@dataclass
class ReplayedRun:
    """A run that rules were judged on; `why` says what could not be judged, and `dropped` how many places are too many to tell."""

    run: str
    held: list[HeldRule] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    dropped: int = 0

    def document(self) -> dict[str, Any]:
        """Return it as `cordee rules run --json` tells it."""
        held = [one.document() for one in self.held]
        return {"run": self.run, "held": held, "not_judged": self.why, "dropped": self.dropped}

    def findings(self) -> Iterator[dict[str, Any]]:
        """Yield what rules say as findings, for rules that count over runs."""
        of_rule: dict[str, list[HeldRule]] = {}
        for one in self.held:
            of_rule.setdefault(one.rule["id"], []).append(one)
        for held in of_rule.values():
            matches = [RuleMatch(one.rule, one.first, one.place, one.what, one.value) for one in held]
            yield {**rule_findings(held[0].rule, matches).document(), "at": held[0].first}


def replay_rules(folder: RunFolder, rules: Sequence[Mapping[str, Any]]) -> ReplayedRun:
    """Judge rules on a run as it is now, but for those that count over runs."""
    replayed, judge = ReplayedRun(folder.id), RuleJudge(rules)
    held: dict[tuple[str, RulePlace], HeldRule] = {}

    def take(match: RuleMatch) -> None:
        known = held.get((match.rule["id"], match.place))
        if known is not None:
            known.first, known.last = min(known.first, match.at), max(known.last, match.at)
            known.times += 1
        elif len(held) >= MOST_PLACES:
            replayed.dropped += 1
        else:
            told = (match.rule, folder.id, match.place, match.at, match.at, 1, match.what[:1000], match.value)
            held[match.rule["id"], match.place] = HeldRule(*told)

    ended = False
    node_of: dict[int, str] = {}
    try:
        for event in JournalFollower(folder, keep=False).stream():
            ended = (ended or event["event"] in _ENDS) and event["event"] != "resume_requested"
            if event["event"] == "attempt_started":
                node_of.update(_ranks_of(event))
            for match in judge.event(event):
                take(match)
        if judge.windows:
            for match in _of_metrics(Run(folder), judge, node_of, ended, replayed):
                take(match)
    except RunFolderError as error:
        replayed.why.append(error.text)
    except (CordeeError, OSError, ValueError) as error:
        replayed.why.append(f"its samples cannot be read: {error}")
    if judge.untracked:
        replayed.why.append("rules look at more places than are remembered: not all are judged")
    replayed.held = sorted(held.values(), key=lambda one: one.first)
    return replayed


def _of_metrics(
    run: Run, judge: RuleJudge, node_of: Mapping[int, str], ended: bool, replayed: ReplayedRun
) -> Iterator[RuleMatch]:
    groups = {group: run.source(group) for group in run.groups()}
    logged = set(run.logged())
    for rule in judge.windows:
        metric, there = rule["when"]["metric"], False
        for group, source in groups.items():
            if metric in source.metrics:
                there = True
                nodes = _nodes_of(run, group, source, node_of)
                yield from _of_grid(source, nodes, judge, rule, ended)
        if metric in logged:
            there = True
            yield from _of_logged(run.events(metric).get(metric), judge, rule, node_of, ended)
        if not there:
            replayed.why.append(f"{rule['id']}: {metric} was not measured")


def _of_grid(
    source: GridSource, places: Sequence[RulePlace], judge: RuleJudge, rule: Mapping[str, Any], ended: bool
) -> Iterator[RuleMatch]:
    """Judge the windows of a sampled metric, some at a time."""
    import numpy as np

    over, (first, stop) = rule["when"]["over"], source.extent()
    devices = max(1, len(source.devices))
    piece = max(over, _PIECE_VALUES // devices * source.cadence // over * over)
    begin = first * source.cadence // over * over
    end = stop * source.cadence if ended else stop * source.cadence // over * over
    while begin < end:
        low, high = (
            max(first, int(np.ceil(begin / source.cadence))),
            min(stop, int(np.ceil((begin + piece) / source.cadence))),
        )
        values = source.slots([rule["when"]["metric"]], low, high)[0]
        numbers = ((np.arange(low, high) * source.cadence) // over).astype(np.int64)
        for number in np.unique(numbers):
            if number * over >= end:
                break
            window = _statistic(values[numbers == number], rule["when"]["statistic"])
            for at in np.flatnonzero(_may_hold(rule["when"], window)):
                match = judge.window(rule, places[int(at)], int(number), float(window[at]))
                if match is not None:
                    yield match
        begin += piece


def _of_logged(
    rows: np.ndarray | None, judge: RuleJudge, rule: Mapping[str, Any], node_of: Mapping[int, str], ended: bool
) -> Iterator[RuleMatch]:
    """Judge the windows of a metric that ranks logged."""
    import numpy as np

    if rows is None or not len(rows):
        return
    over = rule["when"]["over"]
    numbers = (rows["time"] // over).astype(np.int64)
    last = numbers.max()
    order = np.lexsort((rows["rank"], numbers))
    numbers, ranks, values = numbers[order], rows["rank"][order], rows["value"][order].astype(np.float64)
    cuts = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(ranks) != 0)) + 1
    begins, ends = np.r_[0, cuts], np.r_[cuts, len(numbers)]
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        number, rank = int(numbers[begin]), int(ranks[begin])
        if number == last and not ended:
            continue
        value = float(_statistic(values[begin:end, None], rule["when"]["statistic"])[0])
        if in_bounds(rule["when"], value):
            place = RulePlace((node_of[rank],) if rank in node_of else (), (rank,))
            match = judge.window(rule, place, number, value)
            if match is not None:
                yield match


def _statistic(values: np.ndarray, statistic: str) -> np.ndarray:
    """Return float64 (device) of samples (time, device); NaN where nothing was measured."""
    import numpy as np

    known = ~np.isnan(values)
    count = known.sum(axis=0).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        if statistic == "count":
            found = count
        elif statistic == "mean":
            found = np.where(known, values, 0.0).sum(axis=0, dtype=np.float64) / count
        else:
            reduce = np.fmin.reduce if statistic == "min" else np.fmax.reduce
            found = reduce(values, axis=0).astype(np.float64)
    return np.where(count > 0, found, np.nan)


def _may_hold(when: Mapping[str, Any], values: np.ndarray) -> np.ndarray:
    import numpy as np

    holds: np.ndarray = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        if when.get("above") is not None:
            holds &= values > when["above"]
        if when.get("below") is not None:
            holds &= values < when["below"]
    return holds


def _nodes_of(run: Run, group: str, source: GridSource, node_of: Mapping[int, str]) -> list[RulePlace]:
    """Return the place of each device of a group."""
    if group == "rank":
        return [place_of(group, node_of.get(int(device), ""), device) for device in source.devices]
    known = {device: node for node, facts in run.facts(group).items() for device in facts.get("devices", {})}
    return [place_of(group, known.get(str(device), ""), device) for device in source.devices]


def _ranks_of(event: Mapping[str, Any]) -> dict[int, str]:
    found: dict[int, str] = {}
    for placed in event.get("nodes") or ():
        try:
            found.update({int(rank): str(placed["node"]) for rank in placed["ranks"]})
        except (KeyError, TypeError, ValueError):
            continue
    return found
