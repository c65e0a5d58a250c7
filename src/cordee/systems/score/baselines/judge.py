"""Whether a run got worse than a baseline, beyond its noise."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from cordee.core.errors import EXIT_BAD, EXIT_DONE, EXIT_USAGE
from cordee.systems.score.baselines.baseline import Baseline, Spread, quantity_names, spread
from cordee.systems.score.baselines.noise import student_quantile
from cordee.systems.score.baselines.observe import Observation, Quantity, decider_names, more_is_worse

SCHEMA = "cordee.judgement/1"
FALSE_ALARMS = 0.01  # of equal runs, all quantities that decide together
_FEWEST_RUNS = 3  # from so many on the spread between runs may stand alone, where runs are too short to show noise
_MODERATION = 4  # degrees of freedom by which the noise within runs steadies the spread between few runs (Smyth 2004)
_MOST_FREEDOM = 1000.0
_UNSEEN = 0.01  # one run cannot show how runs differ: this share of its value stands for it
_LEAST_POINTS = 1.0
_LEAST_SHARE = 0.02
WORSE, BETTER, SAME, UNKNOWN = "worse", "better", "same", "unknown"
MORE, LESS = "more", "less"  # of what is neither good nor bad


@dataclass(frozen=True)
class Change:
    """One quantity, before and now.

    Attributes:
        threshold: a difference up to this is noise; None where nobody can say.
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
        noise = "its noise is not known" if self.threshold is None else f"noise up to {_short(self.threshold)}"
        unit = f" {self.unit}" if self.unit not in ("", "ratio", "points") else ""
        return (
            f"{self.name}: {_short(self.before)} before, {_short(self.now)} now{unit} "
            f"({self.difference:+.3g}; {noise}): {self.verdict}"
        )


@dataclass(frozen=True)
class BaselineJudgement:
    """What comes of comparing.

    Attributes:
        method: how the noise was estimated, a sentence.
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
    """Return whether a run is worse than the runs of a baseline beyond noise.

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
    risk = FALSE_ALARMS / max(1, len(deciding))
    changes = tuple(
        _change(name, spread(baseline, name), now.quantities[name], name in deciding, risk) for name in names
    )
    return BaselineJudgement(
        workload=baseline.workload,
        verdict=_verdict(changes),
        changes=changes,
        method=method,
        incomparable=tuple(differs),
        remarks=(*now.remarks, *_remarks(now, baseline), *_undecided(now, baseline, changes)),
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
    unseen = f"{_UNSEEN:.0%} of every value for what one run cannot show of how runs differ"
    if runs == 1:
        return f"noise within the runs, from blocks of windows (bootstrap), and {unseen}"
    return (
        f"noise from the spread between {runs} runs (t-interval), steadied as by {_MODERATION} more runs by the noise within "
        f"runs and {unseen}"
    )


def _change(name: str, before: Spread, now: Quantity, decides: bool, risk: float) -> Change:
    threshold = _threshold(before, now, risk)
    difference = now.value - before.mean
    bad_when_more = more_is_worse(name)
    if threshold is None:
        verdict = UNKNOWN
    elif abs(difference) <= threshold:
        verdict = SAME
    elif bad_when_more is None:
        verdict = MORE if difference > 0 else LESS
    else:
        verdict = WORSE if (difference > 0) == bad_when_more else BETTER
    return Change(name, before.unit, before.mean, now.value, threshold, verdict, decides)


def _threshold(before: Spread, now: Quantity, risk: float) -> float | None:
    """Return the difference that equal runs exceed with probability `risk`, at least what anyone would care for."""
    least = _LEAST_POINTS if before.unit == "points" else _LEAST_SHARE * abs(before.mean)
    of_one_run = None if before.within is None else before.within**2 + (_UNSEEN * before.mean) ** 2
    noise = (now.noise or 0.0) ** 2
    if before.between is not None and (of_one_run is not None or before.runs >= _FEWEST_RUNS):
        spread, freedom = before.between**2, before.runs - 1.0
        if of_one_run is not None:
            spread = (_MODERATION * of_one_run + freedom * spread) / (_MODERATION + freedom)
            freedom += _MODERATION
        base, alone = spread / before.runs, max(spread, noise)
        if noise > spread:  # this run is noisier than those were
            freedom = _welch(base, freedom, noise, now.freedom or 1.0)
    elif before.within is not None and of_one_run is not None and now.noise is not None:
        base, alone = of_one_run, noise + (_UNSEEN * before.mean) ** 2
        freedom = _welch(before.within**2, before.freedom or 1.0, noise, now.freedom or 1.0, base + alone)
    else:
        return None
    return max(least, student_quantile(1 - risk, round(freedom, 1)) * math.sqrt(base + alone))


def _welch(one: float, of_one: float, other: float, of_other: float, total: float | None = None) -> float:
    """Return the degrees of freedom (1 to 1000) of the sum of two estimated variances (Welch-Satterthwaite).

    Args:
        of_one, of_other: their degrees of freedom.
        total: the sum with what was not estimated but assumed, which is as sure as it can be.
    """
    total = one + other if total is None else total
    below = (one / total) ** 2 / of_one + (other / total) ** 2 / of_other if total > 0 else 0.0
    return min(max(1.0, 1 / below), _MOST_FREEDOM) if below > 0 else _MOST_FREEDOM


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


def _undecided(now: Observation, baseline: Baseline, changes: tuple[Change, ...]) -> list[str]:
    """Return what could have decided and did not, a sentence each."""
    lacking = [name for name in decider_names(quantity_names(baseline.runs)) if name not in now.quantities]
    unknown = [change.name for change in changes if change.decides and change.threshold is None]
    found = [f"the baseline has {name} and this run has not: it did not decide" for name in lacking]
    return found + [f"the noise of {name} is not known: it did not decide" for name in unknown]


def _short(value: float) -> str:
    return f"{value:.4g}"
