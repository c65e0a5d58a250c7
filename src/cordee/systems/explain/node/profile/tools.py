"""A rank that another tool looks at from outside for some seconds, where that is installed and can attach to a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Iterator, NamedTuple

from cordee.machine.foreign_files import regular
from cordee.systems.explain.node.profile.rank_profile import READY, TRACING, RankProfile, compressed

_PERF_HZ = 99
_SCRIPT_S, _HELP_S = 60.0, 10.0


class ProfilingTool(NamedTuple):
    """A program that attaches to a process.

    Attributes:
        program: its name.
        argv: its arguments, with PID, SECONDS, MS and FOLDER in them.
        made: what it leaves in FOLDER, a pattern; ending: of the file that it becomes.
        reads: arguments by which it makes a text of that on standard output, which symbols cannot be added to elsewhere.
        needs: a word of its `--help`, without which it cannot attach.
        hint: what to do where it fails.
    """

    program: str
    argv: tuple[str, ...]
    made: str
    ending: str
    reads: tuple[str, ...] = ()
    needs: str = ""
    hint: str = ""


TOOLS = {
    "py-spy": ProfilingTool(
        "py-spy",
        (
            "record",
            "--nonblocking",
            "--pid",
            "PID",
            "--duration",
            "SECONDS",
            "--format",
            "speedscope",
            "--output",
            "FOLDER/out",
        ),
        "out",
        "speedscope.json.gz",
        hint="it needs ptrace: kernel.yama.ptrace_scope 0, or CAP_SYS_PTRACE",
    ),
    "perf": ProfilingTool(
        "perf",
        ("record", "-q", "-F", str(_PERF_HZ), "-g", "-p", "PID", "-o", "FOLDER/out", "--", "sleep", "SECONDS"),
        "out",
        "perf.txt.gz",
        ("script", "-i", "FOLDER/out"),
        hint="it needs kernel.perf_event_paranoid 2 or less",
    ),
    "rocprof": ProfilingTool(
        "rocprofv3",
        (
            "--attach",
            "PID",
            "--attach-duration-msec",
            "MS",
            "--sys-trace",
            "--output-format",
            "pftrace",
            "-d",
            "FOLDER",
        ),
        "**/*.pftrace",
        "pftrace.gz",
        needs="--attach",
        hint="ranks must have been started with ROCP_TOOL_ATTACH=1 in [env]",
    ),
}
CANNOT_ATTACH = {"nsys": "nsys traces only what it has started itself: set run to `nsys profile ... python train.py`"}


class ToolProfile(RankProfile):
    """See the module and RankProfile."""

    def __init__(self, about: dict[str, Any], order: dict[str, Any]) -> None:
        super().__init__(about, order)
        self._process: Any = None
        self._folder = Path(tempfile.mkdtemp(prefix=".profile-", dir=order["folder"]))
        if order["tool"] in CANNOT_ATTACH:
            self.fail(CANNOT_ATTACH[order["tool"]])
            return
        self._tool = TOOLS[order["tool"]]
        self.name = f"rank-{self.rank}.{self._tool.ending}"
        self._words = {
            "PID": str(self.pid),
            "SECONDS": f"{order['seconds']:.0f}",
            "MS": f"{1000 * order['seconds']:.0f}",
        }
        self._begin()

    def look(self) -> None:
        if self._process is None or self._process.poll() is None:
            return
        code, self._process = self._process.returncode, None
        if code == 0 and self._tool.reads:
            code = self._read()
        made = [path for path in self._folder.glob(self._tool.made) if path.is_file() and path.stat().st_size]
        if code or not made:
            said = (self._folder / "errors").read_text(errors="replace").split("\n")
            words = next((line.strip() for line in reversed(said) if line.strip()), "it has recorded nothing")
            self.fail(f"{self._tool.program}: {words[:300]} ({self._tool.hint})")
        else:
            self._made = max(made, key=lambda path: path.stat().st_size)
            self.state, self.text = READY, ""

    def content(self) -> Iterator[bytes]:
        with open(self._made, "rb", opener=regular) as file:
            yield from compressed(file)

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self) -> None:
        found = shutil.which(self._tool.program)
        if found is None:
            self.fail(f"{self._tool.program} is not installed on this node, or not in PATH of its agent")
            return
        if self._tool.needs:
            try:
                told = subprocess.run(
                    [found, "--help"], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_HELP_S
                ).stdout
            except (OSError, subprocess.TimeoutExpired):
                told = b""
            if self._tool.needs.encode() not in told:
                self.fail(f"this {self._tool.program} cannot attach to a process: it has no {self._tool.needs}")
                return
        with open(self._folder / "errors", "wb") as errors:
            self._process = subprocess.Popen(
                self._filled(found, self._tool.argv), stdin=subprocess.DEVNULL, stdout=errors, stderr=errors
            )
        self.state = TRACING

    def _read(self) -> int:
        """Make the text of what was recorded."""
        argv = self._filled(self._tool.program, self._tool.reads)
        with open(self._folder / "text", "wb") as text, open(self._folder / "errors", "ab") as errors:
            try:
                code = subprocess.run(
                    argv, stdin=subprocess.DEVNULL, stdout=text, stderr=errors, check=False, timeout=_SCRIPT_S
                ).returncode
            except subprocess.TimeoutExpired:
                return 1
        os.replace(self._folder / "text", self._folder / self._tool.made)
        return code

    def _filled(self, program: str, words: tuple[str, ...]) -> list[str]:
        folder = str(self._folder)
        return [program, *(self._words.get(word, word.replace("FOLDER", folder)) for word in words)]
