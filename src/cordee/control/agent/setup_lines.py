"""Set-up lines: shell lines that run once per node before the ranks and leave their environment to them."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

_HEAD = """\
if ! command -v module >/dev/null 2>&1; then
  for file in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh; do
    if [ -r "$file" ]; then . "$file"; break; fi
  done
fi
"""
_CHOOSE = 'command -v bash >/dev/null && exec bash -c "$1"; eval "$1"'


def setup_shell(lines: Sequence[str], output: Path, in_image: bool) -> tuple[str, ...]:
    """Return the command that runs set-up lines: bash, or the shell of an image that has no bash."""
    script = setup_script(lines, output)
    return ("/bin/sh", "-c", _CHOOSE, "sh", script) if in_image else ("/bin/bash", "-c", script)


def setup_script(lines: Sequence[str], output: Path) -> str:
    """Return a bash script that runs each line, stops at the first that fails, and writes its environment to `output`."""
    parts = [_HEAD]
    for number, line in enumerate(lines, start=1):
        parts.append(
            f"{line}\n"
            "cordee_status=$?\n"
            'if [ "$cordee_status" -ne 0 ]; then\n'
            f'  echo "cordee: set-up line {number} ended with exit code $cordee_status" >&2\n'
            '  exit "$cordee_status"\n'
            "fi\n"
        )
    parts.append(f"env -0 > {_quoted(str(output))}\n")
    return "".join(parts)


def read_environment(path: Path) -> dict[str, str]:
    """Return the environment that a set-up script wrote; shell functions and the script's own variables are kept out."""
    env = {}
    for entry in path.read_bytes().split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name not in (b"_", b"SHLVL", b"cordee_status", b"CORDEE_TASK"):
            env[name.decode(errors="surrogateescape")] = value.decode(errors="surrogateescape")
    return env


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
