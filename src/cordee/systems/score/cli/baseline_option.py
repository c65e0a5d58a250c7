"""What `cordee score DIR... --against BASELINE` adds."""

from __future__ import annotations

from collections.abc import Sequence

from cordee.core.errors import EXIT_BAD, EXIT_DONE, EXIT_USAGE
from cordee.systems.score.baselines.comparison import judge_trace, open_baseline
from cordee.systems.score.baselines.judge import BaselineJudgement
from cordee.systems.score.result import Saturation
from cordee.systems.score.roofs import read_caps
from cordee.systems.score.trace.model import ScoreTrace

_VERDICTS = {
    "worse": "worse than the baseline, beyond the spread of its runs",
    "same": "not worse than the baseline: no difference beyond the spread of its runs",
    "better": "better than the baseline, beyond the spread of its runs",
    "unknown": "cannot be judged",
}


class BaselineOption:
    """A baseline that scorings are judged against.

    Args:
        what: a file that `cordee score baseline` wrote, or a recording or run.
        caps: a file with caps, None for the person's own and the package's.
        workload: what was run, where it is known.
        anyway: compare also what must not be compared.

    Raises:
        CordeeError: it is no baseline, or cannot be scored.
    """

    def __init__(self, what: str, caps: str | None, workload: str, *, anyway: bool) -> None:
        self._baseline = open_baseline(what, read_caps(caps))
        self._workload, self._anyway = workload, anyway
        self._judgements: list[BaselineJudgement] = []

    def judge(self, traces: Sequence[ScoreTrace], found: Sequence[Saturation]) -> list[BaselineJudgement]:
        """Judge scorings of these traces."""
        self._judgements = [
            judge_trace(trace, saturation, self._baseline, self._workload, anyway=self._anyway)
            for trace, saturation in zip(traces, found, strict=True)
        ]
        return self._judgements

    @property
    def exit_code(self) -> int:
        """1 when one is worse, 2 when one cannot be judged."""
        codes = [judgement.exit_code for judgement in self._judgements]
        return next((code for code in (EXIT_BAD, EXIT_USAGE) if code in codes), EXIT_DONE)

    def lines(self, found: Sequence[Saturation]) -> list[str]:
        """Return what is printed below the scores."""
        lines = []
        for saturation, judgement in zip(found, self._judgements, strict=True):
            lines += ["", f"{saturation.job.name}: {_VERDICTS[judgement.verdict]}", *_details(judgement)]
        return lines


def _details(judgement: BaselineJudgement) -> list[str]:
    lines = [f"  {'*' if change.decides else ' '} {change.words()}" for change in judgement.changes]
    if judgement.changes:
        lines.append(f"  * decides; {judgement.method}")
    held = "compared in spite of" if judgement.forced else "not comparable"
    lines += [f"  {held}: {why}" for why in judgement.incomparable]
    lines += [f"  note: {remark}" for remark in judgement.remarks]
    if judgement.incomparable and not judgement.forced:
        lines.append("  next: choose the baseline of this workload and hardware, or compare all the same with --anyway")
    elif judgement.verdict == "unknown":
        lines.append("  next: make the baseline of five runs or more")
    return lines
