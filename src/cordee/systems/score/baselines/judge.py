"""Whether a run got worse than a baseline, beyond the spread of the baseline's runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cordee.core.errors import EXIT_BAD, EXIT_DONE, EXIT_USAGE
from cordee.core.words import counted
from cordee.systems.score.baselines.baseline import FEWEST_RUNS, Baseline, Spread, quantity_names, spread
from cordee.systems.score.baselines.observe import Observation, Quantity, decider_names, more_is_worse

SCHEMA = "cordee.judgement/1"
# Of equal runs whose values are normally distributed, 0.6 % are further below the median of five than twice their spread.
_SPREADS = 2.0
_LEAST_POINTS = 1.0
_LEAST_SHARE = 0.02
WORSE, BETTER, SAME, UNKNOWN = "worse", "better", "same", "unknown"
MORE, LESS = "more", "less"  # of what is neither good nor bad


@dataclass(frozen=True)
class Change:
    """One quantity, before and now.

    Attributes:
        before: the median of the baseline's runs.
        threshold: a difference up to this does not count; None where the baseline has too few runs to say.
        decides: whether the verdict rests on it; the others explain.
    """

    name: str
    unit: str
    before: float
    now: float
    threshold: float | None
    verdict: str
    decides: bool

    @property
    def difference(self) -> float:
        """Now less before."""
        return self.now - self.before

    def words(self) -> str:
        """Return a sentence."""
        counts = "spread not known" if self.threshold is None else f"counts beyond {_short(self.threshold)}"
        unit = f" {self.unit}" if self.unit not in ("", "ratio", "points") else ""
        return (
            f"{self.name}: {_short(self.before)} before, {_short(self.now)} now{unit} "
            f"({self.difference:+.3g}; {counts}): {self.verdict}"
        )


@dataclass(frozen=True)
class BaselineJudgement:
    """What comes of comparing.

    Attributes:
        method: what counts as a difference, a sentence.
        incomparable: why the two must not be compared, a sentence each.
        forced: compared in spite of that.
    """

    workload: str
    verdict: str
    changes: tuple[Change, ...]
    method: str
    incomparable: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    forced: bool = False

    @property
    def exit_code(self) -> int:
        """1 worse, 0 not worse, 2 where it cannot be said."""
        if self.verdict == UNKNOWN:
            return EXIT_USAGE
        return EXIT_BAD if self.verdict == WORSE else EXIT_DONE

    def document(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return {
            "schema": SCHEMA,
            "workload": self.workload,
            "verdict": self.verdict,
            "method": self.method,
            "incomparable": list(self.incomparable),
            "forced": self.forced,
            "remarks": list(self.remarks),
            "changes": [{**asdict(change), "difference": change.difference} for change in self.changes],
        }


def judge(now: Observation, baseline: Baseline, *, anyway: bool = False) -> BaselineJudgement:
    """Return whether a run is worse than the runs of a baseline, beyond their spread.

    The score decides, and with it the application's own speed and its energy per unit of work where both sides know them. A run
    that became faster is not worse because its score fell: the score measures use of the hardware, not speed.

    Args:
        anyway: compare also what must not be compared; it is said.
    """
    differs = incomparable(now, baseline.runs[0])
    method = _method(len(baseline.runs))
    if differs and not anyway:
        return BaselineJudgement(baseline.workload, UNKNOWN, (), method, tuple(differs), now.remarks)
    names = [name for name in quantity_names(baseline.runs) if name in now.quantities]
    deciding = decider_names(names)
    changes = tuple(_change(name, spread(baseline, name), now.quantities[name], name in deciding) for name in names)
    return BaselineJudgement(
        workload=baseline.workload,
        verdict=_verdict(changes),
        changes=changes,
        method=method,
        incomparable=tuple(differs),
        remarks=(*now.remarks, *_remarks(now, baseline), *_undecided(now, baseline)),
        forced=bool(differs),
    )


def incomparable(now: Observation, before: Observation) -> list[str]:
    """Return why two runs must not be compared."""
    pairs = (
        ("workload", before.workload, now.workload),
        ("what was scored", before.kind, now.kind),
        ("model of GPU", before.models_text(), now.models_text()),
        ("number of devices", before.devices, now.devices),
        ("number of ranks", before.world_size, now.world_size),
        ("what had to be assumed", ", ".join(before.assumed) or "nothing", ", ".join(now.assumed) or "nothing"),
    )
    found = [f"{what}: {old} before, {new} now" for what, old, new in pairs if old and new and old != new]
    if before.caps != now.caps and before.models_text() == now.models_text():
        found.append("what counts as full: the caps of this model are not those of the baseline")
    return found


def _method(runs: int) -> str:
    of_runs = f"the median of {counted(runs, 'run')}"
    if runs < FEWEST_RUNS:
        return f"{of_runs}: at least {FEWEST_RUNS} show how far runs of one job differ"
    return (
        f"{of_runs}; a difference counts beyond {_SPREADS:g} times their spread, "
        f"{_LEAST_POINTS:g} point of score and {_LEAST_SHARE:.0%} of anything else"
    )


def _change(name: str, before: Spread, now: Quantity, decides: bool) -> Change:
    threshold = _threshold(before)
    difference = now.value - before.median
    bad_when_more = more_is_worse(name)
    if threshold is None:
        verdict = UNKNOWN
    elif abs(difference) <= threshold:
        verdict = SAME
    elif bad_when_more is None:
        verdict = MORE if difference > 0 else LESS
    else:
        verdict = WORSE if (difference > 0) == bad_when_more else BETTER
    return Change(name, before.unit, before.median, now.value, threshold, verdict, decides)


def _threshold(before: Spread) -> float | None:
    """Return the difference up to which runs are called equal, at least what anyone would care for."""
    if before.runs < FEWEST_RUNS:
        return None
    least = _LEAST_POINTS if before.unit == "points" else _LEAST_SHARE * abs(before.median)
    return max(least, _SPREADS * (before.high - before.low))


def _verdict(changes: tuple[Change, ...]) -> str:
    decide = {change.name: change.verdict for change in changes if change.decides}
    speeds = [verdict for name, verdict in decide.items() if name != "score"]
    if not decide or all(verdict == UNKNOWN for verdict in decide.values()):
        return UNKNOWN
    if any(verdict == WORSE for verdict in speeds):
        return WORSE
    if decide.get("score") == WORSE:
        return BETTER if BETTER in speeds else WORSE
    return BETTER if BETTER in decide.values() else SAME


def _remarks(now: Observation, baseline: Baseline) -> list[str]:
    found = []
    lengths = [run.seconds for run in baseline.runs]
    if not 0.5 <= now.seconds / (sum(lengths) / len(lengths)) <= 2:
        found.append(
            f"this run took {now.seconds:.0f} s, those of the baseline {sum(lengths) / len(lengths):.0f} s: starting and "
            "stopping weigh differently"
        )
    if any(
        change > 1.5
        for change in (now.cadence_s / baseline.runs[0].cadence_s, baseline.runs[0].cadence_s / now.cadence_s)
    ):
        found.append(f"sampled every {now.cadence_s:g} s, the baseline every {baseline.runs[0].cadence_s:g} s")
    return found


def _undecided(now: Observation, baseline: Baseline) -> list[str]:
    """Return what could have decided and is not there, a sentence each."""
    lacking = [name for name in decider_names(quantity_names(baseline.runs)) if name not in now.quantities]
    return [f"the baseline has {name} and this run has not: it did not decide" for name in lacking]


def _short(value: float) -> str:
    return f"{value:.4g}"
