"""What can be read from a training script without running it."""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_LARGEST_BYTES = 2 << 20
_MOST_MODULES = 40
_OWN_VARIABLES = ("CORDEE_RESUME_FROM", "CORDEE_CHECKPOINT_DIR")
_SAVERS = {
    "torch.save": "torch.save",
    "torch.distributed.checkpoint.save": "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.async_save": "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.save_state_dict": "torch.distributed.checkpoint",
}
_FRAMEWORKS = (
    "lightning",
    "pytorch_lightning",
    "transformers",
    "accelerate",
    "deepspeed",
    "torch",
    "jax",
    "tensorflow",
)


@dataclass(frozen=True)
class ScriptOption:
    """A command-line option that a script declares."""

    name: str
    default: object = None
    takes_value: bool = True


@dataclass
class Script:
    """Facts about a script and the modules beside it that it imports.

    Attributes:
        parsed: whether it could be read as Python; without that nothing is known.
        options: the options it declares with argparse or click.
        imports: modules by their full names.
        calls: what it calls, by full names where the import is known.
        texts: text constants; `*` stands for what f-strings fill in.
        signals: names of signals it handles, without SIG.
        needs: environment variables that it cannot do without: `os.environ["X"]`.
        asks: those that it asks for: `os.environ.get("X")`, `"X" in os.environ`.
    """

    parsed: bool = False
    main_guard: bool = False
    options: list[ScriptOption] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    signals: set[str] = field(default_factory=set)
    needs: set[str] = field(default_factory=set)
    asks: set[str] = field(default_factory=set)

    @property
    def goes_on(self) -> bool:
        """Whether it goes on from a checkpoint through Cordée's interface."""
        return "cordee.checkpointer" in self.calls or any(text in _OWN_VARIABLES for text in self.texts)

    @property
    def savers(self) -> list[str]:
        """What it saves with, as far as that can be seen."""
        found = {name for call, name in _SAVERS.items() if call in self.calls}
        return sorted(found | ({*self.frameworks} & {"lightning", "pytorch_lightning", "transformers"}))

    @property
    def frameworks(self) -> list[str]:
        """The frameworks it imports."""
        tops = {name.partition(".")[0] for name in self.imports}
        return [name for name in _FRAMEWORKS if name in tops]

    def option(self, *words: str) -> ScriptOption | None:
        """Return the first option whose name holds one of the words, the first word first."""
        for word in words:
            for option in self.options:
                if word in option.name.replace("_", "-"):
                    return option
        return None


def read_script(path: Path, folder: Path | None = None) -> Script:
    """Return the facts about a script; a missing, huge or broken one has none.

    Args:
        path: the script.
        folder: where modules that it imports are looked for besides its own folder; None reads the script alone.
    """
    script = Script()
    waiting, seen = [path], {path}
    while waiting and len(seen) <= _MOST_MODULES:
        current = waiting.pop(0)
        tree = _parse(current)
        if tree is None:
            continue
        reader = _Reader(tree)
        if current == path:
            script.parsed, script.main_guard = True, reader.found.main_guard
        script.options += reader.found.options
        script.texts += reader.found.texts
        for name in ("imports", "calls", "signals", "needs", "asks"):
            getattr(script, name).update(getattr(reader.found, name))
        if folder is not None:
            for module in _modules(reader.found.imports, (path.parent, folder)):
                if module not in seen:
                    seen.add(module)
                    waiting.append(module)
    return script


def local_files(path: Path, folder: Path) -> list[Path]:
    """Return a script and the modules beside it that it imports, and those that these import, in a stable order."""
    found, waiting = [path], [path]
    while waiting and len(found) <= _MOST_MODULES:
        tree = _parse(waiting.pop(0))
        imports = set() if tree is None else _Reader(tree).found.imports
        for module in _modules(imports, (path.parent, folder)):
            if module not in found:
                found.append(module)
                waiting.append(module)
    return found


def _parse(path: Path) -> ast.Module | None:
    try:
        with path.open("rb") as file:
            if not os.path.isfile(path):
                return None
            data = file.read(_LARGEST_BYTES + 1)
        if len(data) > _LARGEST_BYTES:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(data)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _modules(imports: set[str], folders: tuple[Path, ...]) -> Iterator[Path]:
    for name in sorted(imports):
        parts = name.split(".")
        for folder in folders:
            for count in range(len(parts), 0, -1):
                for file in (
                    folder.joinpath(*parts[:count]).with_suffix(".py"),
                    folder.joinpath(*parts[:count], "__init__.py"),
                ):
                    if file.is_file():
                        yield file


class _Reader:
    """One walk over a syntax tree."""

    def __init__(self, tree: ast.Module) -> None:
        self.found = Script()
        self._names: dict[str, str] = {}
        nodes = list(ast.walk(tree))
        for node in nodes:
            self._import(node)
        for node in nodes:
            if isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.Subscript):
                self._variable(node.value, node.slice, self.found.needs)
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
                self._variable(node.comparators[0], node.left, self.found.asks)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.found.texts.append(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values]
                self.found.texts.append("".join(parts))
            elif isinstance(node, ast.If) and "__main__" in ast.unparse(node.test):
                self.found.main_guard = True

    def _import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.found.imports.add(alias.name)
                self._names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            self.found.imports.add(node.module)
            for alias in node.names:
                self.found.imports.add(f"{node.module}.{alias.name}")
                self._names[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def _call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        self.found.calls.add(name)
        if name.endswith(("add_argument", "click.option")):
            self._option(node)
        elif name in ("os.environ.get", "os.getenv") and node.args and isinstance(node.args[0], ast.Constant):
            self.found.asks.add(str(node.args[0].value))
        elif name == "signal.signal" and node.args:
            handled = self._dotted(node.args[0])
            if handled.startswith("signal.SIG"):
                self.found.signals.add(handled.removeprefix("signal.SIG"))

    def _variable(self, of: ast.expr, name: ast.expr, into: set[str]) -> None:
        if self._dotted(of) == "os.environ" and isinstance(name, ast.Constant):
            into.add(str(name.value))

    def _option(self, node: ast.Call) -> None:
        names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        long = next((name for name in names if isinstance(name, str) and name.startswith("--")), None)
        if long is None:
            return
        default, action = named.get("default"), named.get("action")
        is_flag = isinstance(action, ast.Constant) and str(action.value).startswith(("store_true", "store_false"))
        value = default.value if isinstance(default, ast.Constant) else None
        self.found.options.append(ScriptOption(long, value, not is_flag and "is_flag" not in named))

    def _dotted(self, node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            inner = self._dotted(node.value)
            return f"{inner}.{node.attr}" if inner else node.attr
        return self._names.get(node.id, node.id) if isinstance(node, ast.Name) else ""
