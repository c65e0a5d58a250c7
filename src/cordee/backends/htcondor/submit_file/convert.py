"""From a submit file to what a job document says, with a list of what it cannot say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from cordee.backends.htcondor.submit_file.description import (
    SubmitDescription,
    SubmitValue,
    argument_words,
    is_submit_file,
    read_description,
    variables_of,
)
from cordee.backends.htcondor.submit_file.rows import JobRows, differs, read_rows, spread
from cordee.backends.job_scripts.body import FOR_SRUN, IN_FOLDER, OUTPUT, PRINTS, SETS, read_body
from cordee.backends.job_scripts.launch import ScriptLaunch, choose_launch, command_of, read_launch, used_setup
from cordee.backends.job_scripts.render import duration_text, size_text
from cordee.backends.job_scripts.shell import Command
from cordee.backends.job_scripts.text import is_shell, read_script_text
from cordee.backends.job_scripts.variables import Variables
from cordee.core.documents.faults import fault_error
from cordee.core.errors import DocumentError
from cordee.job.command import launches_itself
from cordee.job.conversion import Conversion, Left

ENDINGS = (".sub", ".submit", ".condor", ".htcondor", ".jdl", ".sdf", ".job", ".cmd", ".desc")
_SIZE = re.compile(r"(\d+(?:\.\d*)?)\s*([KMGT]?)(?:i?B)?\Z", re.IGNORECASE)
_SECONDS = re.compile(r"\d[\d\s*+]{0,30}\Z")
_MACRO_LEFT = re.compile(r"\$\$?\(|\$\$\[|\$[A-Za-z]\w*\(")
_GPU_TERM = re.compile(r"\(*\s*(?:TARGET\.)?(\w+)\s*(>=|==|=\?=)\s*(\"[^\"]*\"|[\d.]+)\s*\)*\Z", re.IGNORECASE)
_ALL_ARGUMENTS = ('"$@"', "$@", "$*", '"$*"')
_ARGUMENT = re.compile(r"\$\{?[0-9]")
_USES_ARGUMENTS = re.compile(r"\bshift\b|\bgetopts\b|\$\{?[#0]|\$\{(?:@|\*|[1-9][0-9]|[1-9][^}])|\$[@*]")
# One process with several GPUs must not take itself for one of several ranks: it may start these by itself.
_AS_BY_HAND = ["env", "-u", "RANK", "-u", "LOCAL_RANK", "-u", "WORLD_SIZE", "-u", "LOCAL_WORLD_SIZE"]
_HARMLESS = (SETS, PRINTS, FOR_SRUN, IN_FOLDER, OUTPUT)
_KEPT = "has no place in a document: `run` is the whole script"
_NO_SCRIPT = "is not read: it is not here, or no shell script that is clear; `run` starts it as it is"
_FORM = "not a form that could be read"
_UNIVERSE = "only the universes vanilla, container and docker have a counterpart"
_NO_IMAGE = 'the file names no image: write an EDF with `image = "..."` and name it: environment = "NAME.toml"'
_IMAGES = ("container_image", "docker_image", "+singularityimage", "+apptainerimage")
_EDF = "env.toml"
_IMAGE = 'write an EDF with `image = "{0}"` and name it: environment = "NAME.toml"'
_OF_SITE = "[htcondor] attributes of the cluster's profile says it for every job there"
_LENGTH = "a length of job of the site: [need] time chooses it, by `attributes` of [classes] in the cluster's profile"
_MACHINES = "[htcondor] requirements of the cluster's profile says it for every job there"
_HOME = "the run's folder comes home, at an eviction too: write below $CORDEE_RUN_DIR, or save with cordee.checkpointer"
_CONTINUES = "Cordée continues a run by itself: [checkpoint] says where complete checkpoints lie, and how it goes on"
_FLAT = "goes along at its own path in the job's folder; HTCondor would put it beside the program"
_ELSEWHERE = "lies outside of the job's folder: bring it by [data], or by a set-up line"
_UNKNOWN = "a command of condor_submit that has no counterpart here"
_UNDEFINED = "is not defined in the file: nothing stands in its place; write its value into `run`"
_AT_MATCH = "has a function or a value that only HTCondor fills in: write what it gives into the document"
_NUMBER = "the number of the job, which only HTCondor gives: $CORDEE_RUN_ID is the run's name"
_FATES = {
    name: why
    for why, names in {
        "": "executable arguments environment request_cpus request_memory request_gpus request_disk require_gpus "
        "gpus_minimum_capability gpus_minimum_memory container_image docker_image universe transfer_input_files "
        "max_retries batch_name jobbatchname job_max_vacate_time kill_sig allowed_execute_duration +singularityimage "
        "+apptainerimage allowed_job_duration +jobbatchname should_transfer_files transfer_executable",
        "every rank's output is in the run's folder: `cordee logs RUN`": "output error input stream_output stream_error",
        "Cordée follows the job by a log of its own": "log dagman_log log_xml",
        _HOME: "transfer_output_files transfer_output_remaps output_destination when_to_transfer_output transfer_output "
        "preserve_relative_paths transfer_plugins",
        _CONTINUES: "checkpoint_exit_code transfer_checkpoint_files checkpoint_destination retry_until success_exit_code "
        "on_exit_remove on_exit_hold periodic_release periodic_hold periodic_remove want_graceful_removal leave_in_queue",
        _MACHINES: "requirements rank",
        _LENGTH: "+gpujoblength",
        "[notify] tells people when a run has ended": "notification notify_user",
        "`jobs` of [sweep] or [farm] says over how many jobs they are dealt out": "max_idle max_materialize",
        "the ranks get no environment of the submission there: name in [env] what they need": "getenv",
        "one run has one machine on HTCondor": "machine_count",
        "only GPUs that are good enough are asked for: [need] gpu": "gpus_maximum_capability gpus_minimum_runtime",
        "paths of its files are meant from there; here they are meant from the document's folder": "initialdir initial_dir "
        "remote_initialdir",
    }.items()
    for name in names.split()
}


def read_text(path: Path) -> str:
    """Return the text of a submit file.

    Raises:
        DocumentError: it cannot be read, is too large, in no encoding that is clear, or no submit file.
    """
    text = read_script_text(path, "a submit file of HTCondor")
    if not is_submit_file(text):
        raise fault_error(
            "is no submit file",
            "bad-script",
            file=str(path),
            line=1,
            given=text.partition("\n")[0],
            allowed="`executable = ...`, further commands and `queue`",
            next="`cordee init` without it looks at the folder",
        )
    return text


@dataclass
class _Submission:
    """What is known while a submit file is read."""

    description: SubmitDescription
    rows: JobRows
    folder: Path
    left: list[Left] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def value(self, *names: str) -> SubmitValue | None:
        """Return the first of these commands that is there, with its macros filled in; None where there is none."""
        for name in names:
            given = self.description.values.get(name)
            if given is None or not given.text:
                continue
            missing: set[str] = set()
            text = self.description.filled(given.text, self.rows.own, missing)
            for macro in sorted(missing) if name not in self.read else ():
                why = _NUMBER if macro.lower() in ("cluster", "clusterid") else _UNDEFINED
                self.left.append(Left(given.line, f"$({macro}) in {given.name}", why))
            if _MACRO_LEFT.search(text) and name not in self.read:
                self.leave(given, _AT_MATCH)
            self.read.add(name)
            return SubmitValue(given.line, given.name, text)
        return None

    def leave(self, value: SubmitValue, why: str) -> None:
        """Note a command that is not carried over, or not wholly."""
        self.left.append(Left(value.line, value.shown, why))

    def number(self, name: str, reader: Callable[[str], int | None]) -> int | None:
        """Return what a command says as a number; one that cannot be read is left."""
        value = self.value(name)
        found = reader(value.text) if value else None
        if value and found is None:
            self.leave(value, _FORM)
        return found


def convert(text: str, file: Path) -> Conversion:
    """Return what the document of a submit file says; nothing is run.

    Args:
        text: of it.
        file: where it lies, beside the program and the lists that it names.

    Raises:
        DocumentError: it has conditions, or includes other files.
    """
    description = read_description(text, str(file))
    rows = read_rows(description.queue, file.parent)
    submission = _Submission(description, rows, file.parent)
    name = submission.value("batch_name", "jobbatchname", "+jobbatchname")
    result = Conversion(
        name=name.text.strip('"') if name else None, directives=len(description.values), code="snapshot"
    )
    gpus = submission.number("request_gpus", _count) or 0
    cpus = submission.number("request_cpus", _count)
    memory = submission.number("request_memory", lambda text: _bytes(text, 20))
    launch = _command(submission, result, gpus)
    _environment(submission, result)
    if result.run is not None:
        varied = {name: value for name, value in result.env.items() if differs(value)}
        result.env = {name: value for name, value in result.env.items() if name not in varied}
        many = spread(result.run, varied, rows, description.queue)
        result.run, result.sweep, result.farm = many.run, many.sweep, many.farm
        submission.left += many.left
    result.need |= _need(submission, gpus, cpus, memory, launch, by_hand=not (result.sweep or result.farm))
    for table in filter(None, (result.sweep, result.farm)):
        table |= {key: value for key, value in (("cores", cpus), ("gpus", gpus)) if value}
        table |= {"memory": size_text(memory)} if memory else {}
    _stops(submission, result)
    _fates(submission)
    result.left = sorted(dict.fromkeys([*description.left, *rows.left, *submission.left]), key=lambda left: left.line)
    return result


def _command(submission: _Submission, result: Conversion, gpus: int) -> ScriptLaunch | None:
    """Fill in `run`, and what a script does before it; return what starts the training, None where that is not known."""
    program, given = submission.value("executable"), submission.value("arguments")
    if program is None:
        return None
    arguments = argument_words(given.text) if given else []
    path = program.text.strip('"')
    text = _script(submission.folder / path)
    first = text.partition("\n")[0] if text is not None else ""
    if text is not None and is_shell(first):
        launch = _of_script(submission, result, program, PurePath(path).name, text, arguments)
        if launch is None:
            shell = PurePath(first.split()[-1]).name if first.split()[-1][:1] != "-" else "bash"
            result.run = shlex.join([shell, path, *arguments])
            return None
    else:
        if path.endswith(".sh"):
            submission.leave(program, _NO_SCRIPT)
        python = path.endswith(".py") or re.match(r"#!\S*(?:/env\s+|/)python", first)
        words = (
            ["python", path]
            if python
            else [path if "/" in path or submission.value("transfer_executable") else f"./{path}"]
        )
        source = [*map(shlex.quote, [*words, *arguments])]
        launch = read_launch(Command(program.line, tuple(source), " ".join(source), ""), Variables())
    if launch.ranks in ("", "1") and gpus > 1 and not launches_itself(tuple(launch.words)):
        launch.words[:0] = _AS_BY_HAND
    result.run = command_of(launch, launch.before)
    result.script = next((word for word in launch.words if word.endswith(".py")), None)
    result.env = dict(launch.env)
    result.restart = {} if launch.retries is None else {"retries": launch.retries}
    submission.left += [Left(program.line, one.text, one.why) for one in launch.left]
    return launch


def _script(path: Path) -> str | None:
    try:
        return read_script_text(path, "a program") if path.is_file() else None
    except DocumentError:
        return None


def _of_script(
    submission: _Submission, result: Conversion, program: SubmitValue, name: str, text: str, arguments: list[str]
) -> ScriptLaunch | None:
    """Return the one command of a shell script, its set-up lines in `setup`; None where only the whole script does the same."""
    known = {str(number): word for number, word in enumerate(arguments, 1)}
    body = read_body(text, Variables(known={**known, **{str(n): "" for n in range(len(arguments) + 1, 10)}}), 1)
    chosen = choose_launch(body.launches)
    launch = None
    if chosen is not None:
        at = [index for index, word in enumerate(chosen.words) if word in _ALL_ARGUMENTS]
        words = list(chosen.words)
        for index in reversed(at):
            words[index : index + 1] = map(shlex.quote, arguments)
        launch = read_launch(
            Command(chosen.line, tuple(words), chosen.text, chosen.after, chosen.redirects), body.variables
        )
        launch.before[:0] = body.before
    lost = [one for one in [*body.left, *(launch.left if launch else [])] if launch is None or one in body.left]
    lost = [one for one in lost if one.why not in _HARMLESS]
    uses = _uses_arguments(text, chosen)
    setup = used_setup(body, launch, []) if launch else []
    unknown = launch is not None and any(map(_ARGUMENT.search, [launch.source, *launch.before, *setup]))
    if launch is None or lost or uses or unknown or len(body.launches) != 1 or any(map(differs, setup)):
        for one in lost[:1] or [Left(1, uses, "")] if lost or uses else ():
            submission.left.append(Left(program.line, f"{name}:{one.line}: {one.text}", _KEPT))
        return None
    result.setup = setup
    launch.env = {**body.env, **launch.env}
    submission.left += [Left(program.line, f"{name}:{one.line}: {one.text}", one.why) for one in body.left]
    return launch


def _uses_arguments(text: str, chosen: Command | None) -> str:
    """Return what of a script uses its arguments in another way than by their number."""
    whole = re.compile(r"(?<!\S)(?:\"\$[@*]\"|\$[@*])(?!\S)")
    rest = text.replace(chosen.text, whole.sub("", chosen.text)) if chosen else text
    found = _USES_ARGUMENTS.search("\n".join(line for line in rest.split("\n") if not line.lstrip().startswith("#")))
    return found[0] if found else ""


def _need(
    submission: _Submission,
    gpus: int,
    cpus: int | None,
    memory: int | None,
    launch: ScriptLaunch | None,
    *,
    by_hand: bool,
) -> dict[str, Any]:
    need: dict[str, Any] = {"gpus_per_node": gpus} if gpus else {}
    ranks = launch.ranks if launch else ""
    count = gpus if ranks == "gpu" else int(ranks) if ranks.isdigit() and int(ranks[:7]) > 0 else 1
    if ranks in ("", "1") and gpus > 1:
        need["ranks_per_node"] = 1
    elif ranks and by_hand:
        need["ranks_per_node"] = "gpu" if ranks == "gpu" else count
    if cpus:
        need["cpus_per_rank"] = max(cpus // max(count, 1), 1)
    if memory:
        need["memory"] = size_text(memory)
    if wanted := _gpu(submission):
        need["gpu"] = ", ".join(wanted)
    duration = submission.value("allowed_execute_duration", "allowed_job_duration")
    if duration:
        if _SECONDS.match(duration.text) and (seconds := _product(duration.text)):
            need["time"] = duration_text(seconds)
        else:
            submission.leave(duration, _FORM)
    if disk := submission.number("request_disk", lambda text: _bytes(text, 10)):
        need["disk"] = size_text(disk)
    return need


def _gpu(submission: _Submission) -> list[str]:
    """Return what each GPU must be."""
    found: dict[str, str] = {}
    if value := submission.value("require_gpus"):
        for term in value.text.split("&&"):
            match = _GPU_TERM.match(term.strip())
            name, compared, wanted = (match[1].lower(), match[2], match[3].strip('"')) if match else ("", "", "")
            if name == "capability" and compared == ">=":
                found["capability"] = f"capability >= {float(wanted):g}" if _is_number(wanted) else ""
            elif name == "globalmemorymb" and compared == ">=" and _is_number(wanted):
                found["memory"] = f"memory >= {size_text(int(float(wanted)) << 20)}"
            elif name == "devicename" and compared != ">=":
                found["model"] = f"model = {wanted}"
            else:
                submission.leave(SubmitValue(value.line, value.name, term.strip()), _MACHINES)
    if value := submission.value("gpus_minimum_capability"):
        if _is_number(value.text):
            found["capability"] = f"capability >= {float(value.text):g}"
        else:
            submission.leave(value, _FORM)
    least = submission.number("gpus_minimum_memory", lambda text: _bytes(text, 20))
    if least:
        found["memory"] = f"memory >= {size_text(least)}"
    return list(filter(None, found.values()))


def _environment(submission: _Submission, result: Conversion) -> None:
    if value := submission.value("environment"):
        pairs = variables_of(value.text)
        result.env = {**pairs, **result.env}
        for name in [name for name in pairs if name.startswith("CORDEE_")]:
            del result.env[name]
            submission.left.append(
                Left(value.line, f"{name}={pairs[name]}", "names that begin with CORDEE_ are Cordée's")
            )
        if not pairs:
            submission.leave(value, _FORM)
    for name in _IMAGES:
        if value := submission.value(name):
            image = value.text.strip('"')
            image = f"docker://{image}" if name == "docker_image" and "://" not in image else image
            if result.image or (submission.folder / _EDF).exists() or _MACRO_LEFT.search(image):
                submission.leave(value, _IMAGE.format(image))
            else:
                result.environment, result.image = _EDF, image
    universe = submission.value("universe")
    kind = universe.text.lower() if universe else ""
    if universe and kind not in ("vanilla", "container", "docker", "5"):
        submission.leave(universe, _UNIVERSE)
    elif universe and kind in ("container", "docker") and not any(map(submission.value, _IMAGES)):
        submission.leave(universe, _NO_IMAGE)


def _stops(submission: _Submission, result: Conversion) -> None:
    """Fill in how a job is stopped, and how often it is started again."""
    retries = submission.number("max_retries", lambda text: int(text) if text.isdigit() and len(text) < 6 else None)
    if retries is not None:
        result.restart = {"retries": retries}
    grace = submission.number("job_max_vacate_time", _product)
    signal = submission.value("kill_sig")
    if grace or signal:
        result.checkpoint["grace"] = duration_text(grace or 120)
    if signal:
        result.checkpoint["signal"] = signal.text.strip('"').upper().removeprefix("SIG")


def _fates(submission: _Submission) -> None:
    """Note every command that is not carried over."""
    used = {
        macro.lower() for one in submission.description.values.values() for macro in re.findall(r"\$\((\w+)", one.text)
    }
    for key, given in submission.description.values.items():
        why = _FATES.get(key, _OF_SITE if key.startswith("+") else None)
        is_macro = key in used and why is None
        if not is_macro and why != "":
            submission.leave(given, why or (_LENGTH if "length" in key and key.startswith("+") else _UNKNOWN))
    if files := submission.value("transfer_input_files"):
        raw = submission.description.values["transfer_input_files"].text
        for name, written in zip(_names(files.text), _names(raw), strict=False):
            inside = not ("://" in name or name.startswith(("/", "..", "~", "$")))
            if name and (not inside or "/" in name or differs(name)):
                submission.left.append(Left(files.line, written, _FLAT if inside else _ELSEWHERE))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.strip().strip('"').split(",")]


def _count(text: str) -> int | None:
    return int(text) if text.isdigit() and len(text) < 7 else None


def _bytes(text: str, power: int) -> int | None:
    """Return the bytes of `16GB` (powers of 1024, as HTCondor counts), without a unit in units of 2**power."""
    match = _SIZE.match(text.strip())
    if match is None or len(text) > 20:
        return None
    size = float(match[1]) * (1 << {"": power, "k": 10, "m": 20, "g": 30, "t": 40}[match[2].lower()])
    return int(size) or None


def _product(text: str) -> int | None:
    """Return the seconds of `3600` or `2 * 60 * 60`."""
    factors = [part.strip() for part in text.split("*")]
    if not all(part.isdigit() and len(part) < 9 for part in factors):
        return None
    seconds = 1
    for part in factors:
        seconds *= int(part)
    return seconds if 0 < seconds < 10**9 else None


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d{1,6}(?:\.\d{0,3})?", text.strip()) is not None
