"""What a page says of a scoring in words and tables."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from cordee.core.draw.clean import one_line, ranges
from cordee.core.hostlist import fold_nodes
from cordee.core.units import format_duration, format_size, utc_text
from cordee.systems.score.report.collect import Collected
from cordee.systems.score.result import UNKNOWN, Saturation, ScorePart, ScoreShares

NOT_MEASURED = "not measured"
MOST_ROWS = 20
_JOULES_PER_KWH = 3.6e6

READING = (
    ("score", "100 x time x breadth x depth, exactly: the mean over all device time that the job held of how close the"
     " hardware came to its roof of compute or memory bandwidth."),
    ("time", "share of the held time in which a kernel was on the device. Low: it waits, for input, for others, for nothing."),
    ("breadth", "share of the SMs that held work while the device was in use. Low: kernels are too small or too few."),
    ("depth", "how close the SMs at work came to the roof. Low: they wait, for memory, for each other, for the network."),
    ("balance", "mean of the devices' scores over that of the best one: 100 % when all are used alike."),
    ("coverage", "measured device time of what the job held. What was not measured lowers confidence; it never counts as zero."),
)  # fmt: skip
CPU_READING = (
    ("score", "100 x time x breadth x depth, exactly, as for GPUs, of the cores that the job held: there was no GPU."),
    ("time", "share of the held time in which at least one core worked."),
    ("breadth", "share of the held cores that worked while any did."),
    ("depth", "instructions per cycle over their roof, where they could be counted; else 1, and the score is an upper bound."),
)  # fmt: skip
NOT_THIS = (
    "Hardware saturation, not speed: a job that recomputes what it could keep scores high and is slow.",
    "Not a mark for people, and not a comparison of models: a small model on a large GPU cannot fill it.",
    "Not convergence: whether the work was worth doing only the loss can tell.",
)


@dataclass(frozen=True)
class WorstTable:
    """Rows of parts, worst first; `rest` says how many more there are and their mean score."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    rest: str


def percent(value: float | None) -> str:
    """Return a share as people read it."""
    return NOT_MEASURED if value is None or not math.isfinite(value) else f"{100 * value:.0f} %"


def points(value: float | None) -> str:
    """Return a score as people read it."""
    return NOT_MEASURED if value is None or not math.isfinite(value) else f"{value:.1f}"


def energy(joules: float | None) -> str:
    """Return an energy as people read it."""
    if joules is None or not math.isfinite(joules):
        return NOT_MEASURED
    if joules < 3.6e5:
        return f"{joules / 3600:.3g} Wh"
    return f"{joules / _JOULES_PER_KWH:,.3g} kWh" if joules < 1000 * _JOULES_PER_KWH else f"{joules / 3.6e9:,.3g} MWh"


def factor(saturation: Saturation, name: str) -> str:
    """Return time, breadth or depth as a factor, marked where it could not be measured and counts as 1."""
    value: float | None = getattr(saturation.shares, name)
    if value is None:
        return NOT_MEASURED
    if name not in saturation.assumed:
        return f"{value:.3f}"
    return "1 (assumed)" if value > 0.9995 else f"{value:.3f} (partly assumed)"


def headline(saturation: Saturation) -> str:
    """Return the score in one sentence, with what bounds it."""
    shares = saturation.shares
    if shares.score is None:
        return f"No score: {', '.join(saturation.confidence_reasons)}."
    what = "GPUs" if saturation.kind == "gpu" else "CPU cores (there was no GPU)"
    bound = ""
    if saturation.assumed:
        bound = f"; an upper bound, because {' and '.join(saturation.assumed)} could not be measured everywhere"
    return f"Saturation of the {what}: {points(shares.score)} of 100{bound}."


def facts(found: Collected) -> list[tuple[str, str]]:
    """Return what the job was, by name; what is not known is left out."""
    saturation = found.saturation
    job, devices = saturation.job, found.trace.devices
    models = Counter(device.model or "unknown model" for device in devices)
    memory = {device.memory_bytes for device in devices if device.memory_bytes}
    state = job.state + (f" (exit code {job.exit_code})" if job.exit_code else "")
    seen = f"{len(devices)}" + (f" of {job.allocated} held" if job.allocated not in (None, len(devices)) else "")
    kinds = ", ".join(f"{count} x {model}" if len(models) > 1 else model for model, count in models.most_common(6))
    hardware = f"{seen} ({kinds}{', ' + format_size(memory.pop()) if len(memory) == 1 else ''})"
    power = mean_power(saturation)
    rows = [
        ("job", job.name + (f", {job.job}" if job.job and job.job != job.name else "")),
        ("command", job.command),
        ("user", job.user),
        ("state", state),
        ("started", _moment(job.started_at)),
        ("ended", _moment(job.ended_at)),
        ("elapsed", format_duration(saturation.seconds)),
        ("nodes", f"{len(job.nodes)}: {fold_nodes(job.nodes)}" if job.nodes else ""),
        ("ranks", str(job.world_size) if job.world_size else ""),
        ("GPUs" if saturation.kind == "gpu" else "measured", hardware if saturation.kind == "gpu" else f"{seen} nodes"),
        ("device time held", f"{_device_hours(saturation):,.3g} hours"),
        ("energy of the devices", energy(saturation.energy_joules)),
        ("mean power of a device", f"{power:,.0f} W" if power is not None else ""),
        ("samples", f"{saturation.source}, every {saturation.cadence_s:g} s"),
    ]
    return [(name, one_line(text, 2000)) for name, text in rows if text]


def mean_power(saturation: Saturation) -> float | None:
    """Return watts per device over the measured time, None when energy was not measured."""
    measured = saturation.shares.device_seconds
    return None if saturation.energy_joules is None or measured <= 0 else saturation.energy_joules / measured


def beside(saturation: Saturation) -> list[tuple[str, str, str]]:
    """Return (name, value, meaning) of what stands beside the score and is never multiplied into it."""
    rows = [
        ("balance", percent(saturation.balance), "mean score of the devices over the best one's"),
        ("clock", percent(saturation.clock_ratio), "SM clock over its maximum while in use"),
        ("coverage", percent(saturation.shares.coverage), "measured device time of what the job held"),
        ("confidence", percent(saturation.confidence), "; ".join(saturation.confidence_reasons) or "nothing lowers it"),
        ("MFU", percent(saturation.mfu), "FLOP/s that the application logged over the peak"),
        ("goodput", percent(saturation.goodput_ratio), "time not lost to waiting, restarts and steps done again"),
    ]
    rows += [(name.replace("_per_s", " per s").replace("_", " "), f"{rate:,.4g}", "logged by the application")
             for name, rate in saturation.rates.items()]  # fmt: skip
    return rows


def tables(found: Collected, most: int = MOST_ROWS) -> list[WorstTable]:
    """Return the tables of nodes, devices and ranks, worst first."""
    saturation = found.saturation
    gpu = saturation.kind == "gpu"
    made = []
    if len(saturation.nodes) > 1 or not gpu:
        made.append(_table("Nodes", saturation.nodes, most, found))
    if gpu:
        made.append(_table("GPUs", saturation.devices, most, found))
    if saturation.ranks and len(saturation.ranks) > 1:
        made.append(_table("Ranks", saturation.ranks, most, found))
    return [table for table in made if table.rows]


def usage_table(found: Collected) -> WorstTable:
    """Return the table that proposals ask for: energy, power, SM and memory use of each GPU."""
    head = ("node", "GPU", "energy", "power", "SM use", "memory bandwidth", "memory, most", "score")
    parts = _worst_first(found.saturation.devices)
    positions = {device.key: at for at, device in enumerate(found.trace.devices)}
    rows = []
    for part in parts[:MOST_ROWS]:
        at = positions.get(part.key)
        device = part.device
        name = (device.node, str(device.index)) if device else (part.key, "")
        rows.append((*name, *_used(found, at), points(part.shares.score)))
    return WorstTable("Use of each GPU", head, rows, _rest(parts, MOST_ROWS))


def device_energy(found: Collected, at: int) -> float | None:
    """Return the joules of a device, from its power over the time in which it was measured."""
    power = found.find("gpu", "gpu_power_watts")
    if power is None or not power.samples[at]:
        return None
    return float(power.means[at] * power.samples[at] * found.trace.cadence_s)


def _used(found: Collected, at: int | None) -> tuple[str, ...]:
    if at is None:
        return ("", "", "", "", "")
    power, sm, dram, memory = (
        found.find("gpu", name)
        for name in ("gpu_power_watts", "gpu_sm_ratio", "gpu_dram_ratio", "gpu_memory_used_bytes")
    )
    watts = f"{power.means[at]:.0f} W" if power is not None and power.samples[at] else NOT_MEASURED
    most = format_size(float(memory.most[at])) if memory is not None and memory.samples[at] else NOT_MEASURED
    return (
        energy(device_energy(found, at)),
        watts,
        percent(float(sm.means[at]) if sm is not None else None),
        percent(float(dram.means[at]) if dram is not None else None),
        most,
    )


def _table(title: str, parts: list[ScorePart], most: int, found: Collected) -> WorstTable:
    shown = _worst_first(parts)
    head = ("GPU" if title == "GPUs" else title[:-1].lower(), "score", "time", "breadth", "depth", "coverage")
    rows = [(_name(title, part), *_shares(part.shares), classes_text(part.classes)) for part in shown[:most]]
    return WorstTable(title, (*head, "mostly"), rows, _rest(shown, most))


def classes_text(classes: dict[str, float], most: int = 2) -> str:
    """Return the commonest classes with their shares."""
    known = sorted(classes.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{name} {share:.0%}" for name, share in known if share >= 0.005) or UNKNOWN


def _name(title: str, part: ScorePart) -> str:
    device = part.device
    if title == "Ranks":
        return f"rank {part.key}" + (f" on {device.node}" if device else "")
    if title == "Nodes" or device is None:
        return part.key
    words = f"{device.node} GPU {device.index}"
    if device.parent:
        words += f", instance ({device.share:.0%} of the SMs)"
    if device.ranks:
        words += f", rank{'s' if len(device.ranks) > 1 else ''} {ranges(list(device.ranks))}"
    return words + (f"; shared: {device.shared}" if device.shared else "")


def _shares(shares: ScoreShares) -> tuple[str, ...]:
    return (
        points(shares.score),
        percent(shares.time),
        percent(shares.breadth),
        percent(shares.depth),
        percent(shares.coverage),
    )


def _worst_first(parts: list[ScorePart]) -> list[ScorePart]:
    """Return parts by their scores, those without a score first: unknown is never healthy."""
    return sorted(parts, key=lambda part: -1.0 if part.shares.score is None else part.shares.score)


def _rest(parts: list[ScorePart], most: int) -> str:
    rest = parts[most:]
    if not rest:
        return ""
    scores = [part.shares.score for part in rest if part.shares.score is not None]
    mean = f", mean score {sum(scores) / len(scores):.1f}" if scores else ""
    return f"and {len(rest)} more{mean}; all are in score.json"


def _device_hours(saturation: Saturation) -> float:
    shares = saturation.shares
    held = shares.device_seconds / shares.coverage if shares.coverage > 0 else 0.0
    count = saturation.job.allocated or len(saturation.devices)
    return (held or count * saturation.seconds) / 3600


def _moment(seconds: float | None) -> str:
    return "" if seconds is None else utc_text(seconds)[:19].replace("T", " ") + " UTC"
