"""Shell lines that run before ranks and leave their environment to them: the set-up lines of a job, the start-up commands of
an environment. One shell runs all of them, so that what a line exports or where it goes holds for the next."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD = """\
if ! command -v module >/dev/null 2>&1; then
  for file in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh; do
    if [ -r "$file" ]; then . "$file"; break; fi
  done
fi
cordee_env=$(command -v env)
cordee_uptime() { read -r cordee_now cordee_idle </proc/uptime; }
"""
_CHOOSE = 'command -v bash >/dev/null && exec bash -c "$1"; eval "$1"'
_STEP = b"cordee_step"
# Told last: a line that ends the shell, or swallows what is behind it, leaves no environment, which is not an empty one.
_END = b"cordee_end="
# Of the shell, of the script, and of whoever started it.
_NOT_KEPT = (
    b"_",
    b"SHLVL",
    b"cordee_status",
    b"cordee_began",
    b"cordee_now",
    b"cordee_idle",
    b"cordee_env",
    b"CORDEE_TASK",
    _STEP,
)


class LineTiming:
    """How a line ended: its number from 1, its exit code, and how long it took."""

    __slots__ = ("code", "number", "seconds")

    def __init__(self, number: int, code: int, seconds: float) -> None:
        self.number, self.code, self.seconds = number, code, seconds


def lines_shell(lines: Sequence[str], output: str, in_image: bool, what: str = "set-up line") -> tuple[str, ...]:
    """Return the command that runs lines: bash, or the shell of an image that has no bash."""
    script = lines_script(lines, output, what)
    return ("/bin/sh", "-c", _CHOOSE, "sh", script) if in_image else ("/bin/bash", "-c", script)


def lines_script(lines: Sequence[str], output: str, what: str = "set-up line") -> str:
    """Return a script that runs each line and stops at the first that fails.

    Args:
        lines: of shell.
        output: the file that gets, with a NUL behind each, how every line ended and then the environment; empty: what is
            open as descriptor 3. Without an end, as `has_ended` has it, there is no environment in it.
        what: a line is called in the words on standard error for one that failed; empty: without those.
    """
    told = f'  echo "cordee: {what} {{}} ended with exit code $cordee_status" >&2\n' if what else ""
    into = f">>{_quoted(output)}" if output else ">&3"
    parts = [f": >{_quoted(output)}\n" if output else "", _HEAD]
    for number, line in enumerate(lines, start=1):
        parts.append(
            "cordee_uptime; cordee_began=$cordee_now\n"
            f"{line}\n"
            "cordee_status=$?\n"
            f"cordee_uptime; printf 'cordee_step={number} %s %s %s\\0' "
            f'"$cordee_status" "$cordee_began" "$cordee_now" {into}\n'
            'if [ "$cordee_status" -ne 0 ]; then\n'
            f"{told.format(number)}"
            '  exit "$cordee_status"\n'
            "fi\n"
        )
    # A line may have taken the program's folder off the PATH.
    parts.append(f"\"${{cordee_env:-env}}\" -0 {into} && printf 'cordee_end=\\0' {into}\n")
    return "".join(parts)


def has_ended(output: bytes) -> bool:
    """Return whether a script came to its end, and the environment in its output is all of it."""
    return output.endswith(b"\0" + _END + b"\0")


def environment_in(output: bytes) -> dict[str, str]:
    """Return the environment that a script left, without the script's own variables."""
    env = {}
    for entry in output.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name not in (*_NOT_KEPT, _END[:-1]):
            env[name.decode(errors="surrogateescape")] = value.decode(errors="surrogateescape")
    return env


def timings_in(output: bytes) -> list[LineTiming]:
    """Return how the lines ended that did, in their order."""
    found = []
    for entry in output.split(b"\0"):
        name, _, value = entry.partition(b"=")
        words = value.split()
        if name == _STEP and len(words) == 4:
            found.append(LineTiming(int(words[0]), int(words[1]), max(0.0, float(words[3]) - float(words[2]))))
    return found


def failed_line(timings: Sequence[LineTiming], count: int) -> int:
    """Return the number of the line that ended the shell; one that calls `exit` tells no end of its own.

    Args:
        timings: of the lines that told their end.
        count: of all lines.
    """
    last = timings[-1].number if timings and timings[-1].code else len(timings) + 1
    return min(last, count)


def lost_environment(output: bytes, code: int | None, lines: Sequence[str], what: str) -> tuple[str, str, str] | None:
    """Return what is wrong, the line and what to do where no line failed and yet there is no environment; else None.

    Args:
        output: of the script.
        code: its exit code; None: it was killed.
        lines: as given.
        what: a line is called.
    """
    timings = timings_in(output)
    all_told = len(timings) == len(lines) and not timings[-1].code
    if has_ended(output) or code is None or (code != 0 and not all_told):
        return None
    if all_told:
        text = f"what the {what}s leave cannot be read: `env -0` failed"
        return text, lines[-1], "the image needs an `env` that knows -0, as of coreutils or busybox"
    failed = failed_line(timings, len(lines))
    text = f"{what} {failed} of {len(lines)} ended the shell with exit code 0, and what is exported would be lost"
    hint = "leave out `exit` and `exec`, or put them in parentheses: (exec PROGRAM); close quotes and here-documents"
    return text, lines[failed - 1], hint


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
