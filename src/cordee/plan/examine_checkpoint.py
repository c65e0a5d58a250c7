"""What a restart would do: go on from a checkpoint, or begin at zero."""

from __future__ import annotations

import fnmatch
import os
import shlex
from pathlib import Path, PurePath

from cordee.findings import Finding
from cordee.plan.model import Plan
from cordee.spec.load import LoadedJob
from cordee.spec.scripts import Script, read_script, script_of
from cordee.units import format_duration


def examine_checkpoint(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Return the findings on checkpoints and restarts."""
    name = script_of(loaded.job.run)
    script = read_script(loaded.folder / name, loaded.folder) if name else Script()
    findings = _restart(loaded, plan, script)
    findings += _signal(loaded, plan, script)
    findings += _place(loaded, plan)
    checkpoint = plan.step.checkpoint
    if checkpoint.ignore:
        file, line = loaded.place("checkpoint", "path")
        count = len(checkpoint.ignore)
        what = "1 checkpoint lies" if count == 1 else f"{count} checkpoints lie"
        findings.append(
            Finding(
                f"{what} in {checkpoint.path} already; this run does not go on from what was there before",
                "info",
                "earlier-checkpoints",
                file=file,
                line=line,
                given=sorted(checkpoint.ignore)[-5:],
                next="`cordee resume RUN` goes on with an earlier run",
            )
        )
    return findings


def _restart(loaded: LoadedJob, plan: Plan, script: Script) -> list[Finding]:
    checkpoint = plan.step.checkpoint
    if checkpoint.resume is not None or script.goes_on:
        return []
    own = next((word for word in loaded.job.run if word.startswith("-") and "resume" in word), None)
    file, line = loaded.place("checkpoint")
    if own is not None:
        text = f"a restart runs the same command again: whether {own} then goes on is up to the script"
        return [Finding(text, "info", "resume-in-run", file=file, line=line, given=own)]
    option = script.option("resume", "load-checkpoint", "from-checkpoint", "ckpt-path", "load-ckpt")
    argument = f"{option.name if option and option.takes_value else '--resume'} {{checkpoint}}"
    what = f'[checkpoint] with path, pattern and resume = "{argument}"'
    if checkpoint.declared and "pattern" in (loaded.job.checkpoint.model_fields_set if loaded.job.checkpoint else ()):
        text = "a restart begins at zero: [checkpoint] has a pattern and no resume"
        given, what = checkpoint.pattern, f'add resume = "{argument}" to [checkpoint]'
    else:
        text = "a restart begins at zero: nothing says how the script goes on from a checkpoint"
        given, what = shlex.join(loaded.job.run), f"save with cordee.checkpointer(...), or add {what}"
    allowed = "resume with {checkpoint} in it, or a script that calls cordee.checkpointer"
    severity, count = "warn", plan.step.segment.max_segments
    if count > 1:
        severity = "error"
        what += f", or ask for no more than {format_duration(plan.step.segment.limit_s or 0)}"
        text = f"each of the {count} segments of this chain would begin at zero: {text.partition(': ')[2]}"
    return [Finding(text, severity, "restart-from-zero", file=file, line=line, given=given, allowed=allowed, next=what)]


def _signal(loaded: LoadedJob, plan: Plan, script: Script) -> list[Finding]:
    """Warn when a script that can be read does not handle the signal that would end it."""
    name = plan.step.checkpoint.signal
    if name is None or not script.parsed or name in script.signals or "signal.signal" in script.calls:
        return []
    file, line = loaded.place("checkpoint", "signal")
    text = f"the script does not seem to handle {name}, which would end it instead of making it save"
    allowed = f"a script that calls signal.signal(signal.SIG{name}, ...)"
    what = "handle it, or remove [checkpoint] signal"
    return [Finding(text, "warn", "unhandled-signal", file=file, line=line, given=name, allowed=allowed, next=what)]


def _place(loaded: LoadedJob, plan: Plan) -> list[Finding]:
    """Refuse a checkpoint folder that cannot be one, before an hour of training is lost to it."""
    checkpoint = plan.step.checkpoint
    if not checkpoint.declared:
        return []
    path = Path(checkpoint.path)
    existing = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
    file, line = loaded.place("checkpoint", "path")
    if not existing.is_dir():
        text, allowed = f"{existing} is not a folder", "a folder"
    elif not os.access(existing, os.W_OK | os.X_OK):
        text, allowed = f"{existing} cannot be written", "a folder that you may write"
    else:
        return _looks_unmatched(loaded, plan, path)
    what = "choose another [checkpoint] path"
    given = checkpoint.path
    return [Finding(text, "error", "checkpoint-place", file=file, line=line, given=given, allowed=allowed, next=what)]


def _looks_unmatched(loaded: LoadedJob, plan: Plan, path: Path) -> list[Finding]:
    """Say when the folder holds numbered files that the pattern misses: the pattern is likely wrong."""
    pattern = plan.step.checkpoint.pattern
    if plan.step.checkpoint.resume is None or "/" in pattern or not path.is_dir():
        return []
    names = [name for name in sorted(os.listdir(path)) if not name.startswith(".") and any(map(str.isdigit, name))]
    if not names or any(fnmatch.fnmatchcase(name, pattern) for name in names):
        return []
    file, line = loaded.place("checkpoint", "pattern")
    text = f"no file in {path} is called {pattern}, such as {PurePath(names[-1]).name} is"
    what = "correct [checkpoint] pattern if these are checkpoints"
    return [Finding(text, "info", "pattern-matches-none", file=file, line=line, given=pattern, next=what)]
