"""What an environment reached on a machine that was well, kept beside its EDF, and whether it still does."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cordee.core.errors import UsageError
from cordee.core.stats import mad, median
from cordee.core.units import utc_text
from cordee.machine.foreign_files import read_json
from cordee.machine.machine import cpu_field
from cordee.runs.folder import write_atomically
from cordee.systems.environments.ready.doctor import DoctorTrial, gpus_of

SCHEMA = "cordee.environment-baseline/1"
# Slower by less is no news, whatever the noise; by more than that a failure.
_NEWS_RATIO, _FAILED_RATIO, _DEVIATIONS = 0.85, 0.5, 3.0


def baseline_path(edf: Path) -> Path:
    """Return where the baseline of an EDF lies: beside it."""
    return edf.with_suffix(".baseline.json")


def keep_baseline(edf: Path, trials: Sequence[DoctorTrial], ranks: int) -> Path:
    """Write what was reached as the baseline of an EDF.

    Raises:
        UsageError: something failed, or nothing was measured.
    """
    failed = [trial.what for trial in trials if trial.status == "fail"]
    rates = {trial.what: trial.rates for trial in trials if trial.rates}
    if failed or not rates:
        what = ", ".join(failed) if failed else "nothing was measured"
        raise UsageError(
            "this is no state to hold others against", given=what, next="mend it, and keep what is reached then"
        )
    path = baseline_path(edf)
    document = {"schema": SCHEMA, "made_at": utc_text(), "machine": machine_kind(trials, ranks), "rates": rates}
    write_atomically(path, json.dumps(document, indent=1) + "\n", mode=0o644)
    return path


def machine_kind(trials: Sequence[DoctorTrial], ranks: int) -> dict[str, str | int]:
    """Return what has to be the same for rates to be compared."""
    gpus = gpus_of()
    return {
        "processor": cpu_field("/", "model name") or os.uname().machine,
        "cores": len(os.sched_getaffinity(0)),
        "gpus": gpus,
        "gpu": next((trial.device for trial in trials if trial.device), ""),
        "ranks": gpus if gpus > 1 else ranks,
    }


def against_baseline(edf: Path, trials: Sequence[DoctorTrial], ranks: int) -> list[DoctorTrial]:
    """Return the trials, each that was measured with what the baseline says of it; that there is none, or of another machine, is one more.

    Raises:
        UsageError: the baseline cannot be read.
    """
    path = baseline_path(edf)
    try:
        document = read_json(path)
        if document["schema"] != SCHEMA:
            raise ValueError(f"its schema is {document['schema']}")
        rates = {str(what): [float(rate) for rate in each] for what, each in document["rates"].items()}
        there, made_at = dict(document["machine"]), str(document["made_at"])
    except FileNotFoundError:
        how = f"on a node that is well: cordee env doctor {edf} --keep"
        return [*trials, DoctorTrial("baseline", "unknown", f"none is kept as {path.name} beside the EDF", how)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"the baseline cannot be read: {error}", given=str(path), next="remove it, and keep one anew"
        ) from None
    here = machine_kind(trials, ranks)
    differs = [f"{key} {there.get(key)} there, {value} here" for key, value in here.items() if there.get(key) != value]
    if differs:
        text = f"the baseline is of another machine: {'; '.join(differs)}"
        return [*trials, DoctorTrial("baseline", "unknown", text, "cordee env doctor --keep on a node of this kind")]
    return [_judged(trial, rates.get(trial.what, []), made_at) for trial in trials]


def _judged(trial: DoctorTrial, before: Sequence[float], made_at: str) -> DoctorTrial:
    if not trial.rates or not before or trial.status == "fail":
        return trial
    was, now = median(before), median(trial.rates)
    noise = _DEVIATIONS * (mad(before) + mad(trial.rates))
    text = f"{trial.text}; {now / was:.0%} of the baseline of {made_at[:10]}"
    if now >= was - noise or now >= _NEWS_RATIO * was:
        return replace(trial, text=text)
    status = "fail" if now < _FAILED_RATIO * was else "warn"
    hint = "look for other work on this machine, its clocks and limits; then cordee vet"
    return replace(trial, status=status, text=text, next=hint)
