"""What can be read from a training script without running it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path, PurePath

_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_LARGEST_BYTES = 4 << 20


@dataclass(frozen=True)
class Script:
    """Facts about a script: its argparse options, what it imports, and which calls it makes (`module.name`)."""

    text: str = ""
    options: list[str] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)

    @property
    def uses_checkpointer(self) -> bool:
        """Whether it saves through Cordée."""
        return "cordee.checkpointer" in self.calls or ("cordee" in self.imports and "checkpointer" in self.calls)


def script_of(argv: tuple[str, ...]) -> str | None:
    """Return the Python script that a command runs, None for modules, `-c` and other programs."""
    name = PurePath(argv[0]).name
    words = list(argv[1:])
    if name.startswith("python"):
        while words:
            word = words.pop(0)
            if word in ("-m", "-c", "-"):
                return None
            if word in _WITH_VALUE:
                words = words[1:]
            elif not word.startswith("-"):
                return word
        return None
    if name in ("torchrun", "accelerate"):
        return next((word for word in words if word.endswith(".py")), None)
    return argv[0] if name.endswith(".py") else None


def read_script(path: Path) -> Script:
    """Return the facts about a script; a missing, huge or broken one has none."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            return Script()
        text = path.read_text(errors="replace")
    except OSError:
        return Script()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return Script(text)
    script = Script(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            script.imports.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            script.imports.add(node.module.split(".")[0])
        elif isinstance(node, ast.Call):
            name = _dotted(node.func)
            script.calls.add(name)
            if name.endswith("add_argument"):
                strings = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
                script.options.extend(value for value in strings if isinstance(value, str) and value.startswith("--"))
    return script


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else node.attr
    return node.id if isinstance(node, ast.Name) else ""
