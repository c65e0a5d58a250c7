"""From features to classes of windows, and from those to causes with evidence, advice and the most that they could gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cordee.systems.score.diagnosis.evidence import asked, evidence, percent, unknown_evidence
from cordee.systems.score.diagnosis.longest_stretch import Scene, longest
from cordee.systems.score.diagnosis.rules import RuleChoice, ScoreRule, choose
from cordee.systems.score.result import CLASSES, UNKNOWN, Diagnosis, ScoreWindows

if TYPE_CHECKING:
    from cordee.systems.score.identity import Levels
    from cordee.systems.score.trace.model import ScoreTrace
    from cordee.systems.score.windows import WindowCut

_UNKNOWN_ADVICE = (
    "Use a source that measures more: on NVIDIA Hopper and newer NVML's GPM metrics need no daemon (`cordee record --help`).",
    "Record with host metrics beside the GPUs': `cordee record -- CMD` or `cordee run`.",
)


class Diagnosed:
    """The windows with their classes, and the causes.

    Attributes:
        weight: float64 [window, device], measured seconds of each window, an instance counting by its share of the GPU.
    """

    def __init__(self, windows: ScoreWindows, causes: list[Diagnosis], weight: np.ndarray) -> None:
        self.windows, self.causes, self.weight = windows, causes, weight
        columns = weight.shape[1]
        seconds = [np.where(windows.classes == at, weight, 0.0).sum(axis=0) for at in (*range(len(CLASSES)), -1)]
        self._seconds = np.array(seconds).reshape(-1, columns)
        there = [np.where(np.isfinite(values), weight, 0.0) for values in windows.features.values()]
        self._weights = np.array([of.sum(axis=0) for of in there]).reshape(-1, columns)
        sums = [
            (np.nan_to_num(values) * of).sum(axis=0)
            for values, of in zip(windows.features.values(), there, strict=True)
        ]
        self._sums = np.array(sums).reshape(-1, columns)

    def shares(self, columns: Sequence[int]) -> dict[str, float]:
        """Return the share of each class in the measured time of some devices."""
        seconds = self._seconds[:, list(columns)].sum(axis=1).tolist()
        total = sum(seconds)
        return {name: value / total for name, value in zip((*CLASSES, UNKNOWN), seconds, strict=True) if value > 0}

    def means(self, columns: Sequence[int]) -> dict[str, float]:
        """Return the mean of each feature over the measured time of some devices."""
        at = list(columns)
        sums, weights = self._sums[:, at].sum(axis=1).tolist(), self._weights[:, at].sum(axis=1).tolist()
        means = zip(self.windows.features, sums, weights, strict=True)
        return {name: value / weight for name, value, weight in means if weight > 0}


def diagnose(
    trace: ScoreTrace, levels: Levels, features: Mapping[str, np.ndarray], cut: WindowCut, rules: Sequence[ScoreRule]
) -> Diagnosed:
    """Return classes and causes.

    Args:
        levels: the trace's.
        features: float32 [window, device] by name.
        cut: the windows of the features.
    """
    shape = (cut.windows, len(trace.devices))
    of_kind = [rule for rule in rules if rule.kind == trace.kind]
    shares = np.array([device.share for device in trace.devices])
    weight = cut.count(levels.graphics) * trace.cadence_s * shares[None, :]
    choice = choose(of_kind, features, shape)
    index = np.array([*(CLASSES.index(rule.name) for rule in of_kind), -1], dtype=np.int8)
    classes = index[choice.chosen]
    classes[weight <= 0] = -1
    windows = ScoreWindows(cut.starts, cut.length_s, classes, dict(features))
    scene = Scene(trace, windows, weight)
    causes = [_cause(scene, name, at, of_kind, choice) for at, name in enumerate(CLASSES)]
    causes.append(_unknown(scene, of_kind, choice, index))
    known = [cause for cause in causes if cause is not None]
    return Diagnosed(windows, sorted(known, key=lambda cause: -cause.share), weight)


def weighted_mean(values: np.ndarray, weight: np.ndarray) -> float:
    """Return the mean of what is not NaN; NaN where nothing is."""
    there = np.isfinite(values) & (weight > 0)
    total = float(weight[there].sum())
    return float((values[there] * weight[there]).sum()) / total if total > 0 else float("nan")


def _cause(scene: Scene, name: str, at: int, rules: Sequence[ScoreRule], choice: RuleChoice) -> Diagnosis | None:
    cells = (scene.windows.classes == at) & (scene.weight > 0)
    total = float(scene.weight.sum())
    if total <= 0 or not cells.any():
        return None
    share = float(scene.weight[cells].sum()) / total
    matched = [
        (float(scene.weight[cells & (choice.chosen == number)].sum()), rule)
        for number, rule in enumerate(rules)
        if rule.name == name
    ]
    rule = max(matched, key=lambda pair: pair[0])[1]
    spot = longest(scene, cells, asked(rule))
    said = tuple(evidence(spot, cells, rule))
    return Diagnosis(name, share, rule.title, said, rule.advice, _gain(scene, cells, rule), spot.document())


def _unknown(scene: Scene, rules: Sequence[ScoreRule], choice: RuleChoice, index: np.ndarray) -> Diagnosis | None:
    cells = (scene.windows.classes < 0) & (scene.weight > 0)
    total = float(scene.weight.sum())
    if total <= 0 or not cells.any():
        return None
    said = unknown_evidence(scene, cells, rules, choice.undecided)
    guess = index[choose(rules, scene.windows.features, cells.shape, guess=True).chosen]
    seconds = {name: float(scene.weight[cells & (guess == at)].sum()) for at, name in enumerate(CLASSES)}
    whole = float(scene.weight[cells].sum())
    likely = sorted((-value, name) for name, value in seconds.items() if value > 0.005 * whole)
    if likely:
        words = ", ".join(f"{name} {percent(-value / whole)}" for value, name in likely[:3])
        said.append(f"if what was not measured made no difference it would be {words}")
    share = float(scene.weight[cells].sum()) / total
    return Diagnosis(UNKNOWN, share, "cannot be told from what was measured", tuple(said), _UNKNOWN_ADVICE)


def _gain(scene: Scene, cells: np.ndarray, rule: ScoreRule) -> float | None:
    """Return Amdahl's bound: these windows shrink to what the rule's gain feature says is work, all others stay.

    Where the waits for input were logged no more than those can go.
    """
    values = scene.windows.features.get(rule.gain)
    if not rule.gain or values is None:
        return None
    weight = np.where(cells, scene.weight, 0.0)
    works = weighted_mean(values, weight)
    waits = scene.windows.features.get("data_wait")
    if rule.name == "input" and waits is not None:
        works = max(works, 1.0 - weighted_mean(waits, weight))
    if not np.isfinite(works):
        return None
    left = 1.0 - float(weight.sum()) / float(scene.weight.sum()) * (1.0 - min(1.0, max(0.0, works)))
    return 1.0 / max(left, 0.01)
