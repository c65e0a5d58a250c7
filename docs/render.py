"""Renders the pages that are made from code: the order of rooms, and every command's help."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import click

from cordee.cli.group import COMMANDS, LazyGroup


def write_all(docs: Path) -> None:
    """Write architecture.md and commands.md beside the other pages, only when they change."""
    for name, text in (("architecture.md", architecture(docs.parent)), ("commands.md", commands())):
        path = docs / name
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def architecture(root: Path) -> str:
    """Return the architecture page, from the tuple of tests/test_layers.py."""
    spec = importlib.util.spec_from_file_location("layers", root / "tests" / "test_layers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = [f"| `{room}` | {text} | {side} |" for room, side, text in module.LAYERS]
    return "\n".join(
        [
            "# Architecture",
            "",
            "Rooms stand in the order of data. A room imports only from itself and from rooms above it. The node side runs",
            "on Python 3.9 with the standard library alone, is copied into each run as one zip, and never imports the",
            "document side. `tests/test_layers.py` enforces this, and this table is rendered from it.",
            "",
            "| room | holds | side |",
            "|---|---|---|",
            *rows,
            "",
            "The shape of a run is described in [A run's life](life.md), its files in [The run folder](run-folder.md).",
            "",
        ]
    )


def commands() -> str:
    """Return the page of all commands, from their help texts."""
    group: Any = LazyGroup("cordee")
    parts = ["# Commands", "", "Every command explains itself with `--help`; these are the same texts.", ""]
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        parts += _section(command, f"cordee {name}")
        if isinstance(command, click.Group):
            for inner in command.commands.values():
                parts += _section(inner, f"cordee {name} {inner.name}")
    return "\n".join(parts)


def _section(command: click.Command, title: str) -> list[str]:
    context = click.Context(command, info_name=title, max_content_width=100, terminal_width=100)
    return [f"## {title}", "", "```text", command.get_help(context).rstrip(), "```", ""]
