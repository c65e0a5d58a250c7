"""Back ends are asked what they can do, and not compared by name: outside of `backends/` and their table nobody knows their names."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.core.backends import BUILT_IN

PACKAGE = Path(__file__).parents[1] / "src" / "cordee"
TABLE = "core/backends.py"
# The same words where they name something else: how often, and what. May only shrink.
OTHER_THINGS = {
    "testing/cli.py": (12, "a word of our own command line, and the folder of the disposable Slurm"),
    "client/adapters/jax.py": (1, "JAX's own name of a way to start processes"),
    "systems/environments/hooks.py": (1, "a hook of an EDF"),
    "systems/environments/node/hooks/__init__.py": (1, "a hook of an EDF"),
    "systems/environments/node/hooks/slurm.py": (
        1,
        "a hook of an EDF, and the folders and the user of an installation",
    ),
    "systems/vetting/protocol/document.py": (1, "a word of vetnode's documents"),
    "systems/vetting/protocol/vetnode.py": (1, "a word of vetnode's documents"),
    "systems/services/blueprint.py": (1, "a word of `cordee service --target`"),
    "job/cluster.py": (2, "the cluster of this machine, which needs no profile"),
    "systems/vetting/protocol/site.py": (2, "the cluster of this machine, which needs no profile"),
}
_MAY_HOLD_ONE = re.compile(rf"HERE|\.backend|\.scheduler|[\"']({'|'.join(BUILT_IN)})[\"']")


def names_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, what) of every use of a back end's name, and of every comparison of a back end with a word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in BUILT_IN:
            yield node.lineno, f'"{node.value}"'
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        if any(isinstance(side, ast.Name) and side.id == "HERE" for side in sides):
            yield node.lineno, ast.unparse(node)
        words = [side for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)]
        if any(isinstance(side, ast.Attribute) and side.attr in ("backend", "scheduler") for side in sides) and any(
            word.value not in BUILT_IN for word in words
        ):
            yield node.lineno, ast.unparse(node)


def test_nothing_outside_of_backends_knows_a_back_end_by_name():
    sources = {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    found = {
        name: list(names_in(source))
        for name, source in sources.items()
        if not name.startswith("backends/") and name != TABLE and _MAY_HOLD_ONE.search(source)
    }
    counts = Counter({name: len(uses) for name, uses in found.items() if uses})
    faults = [
        f"{name}:{line}: {what}: ask what a back end can (`cordee.core.backends.abilities`), or put this into its folder"
        for name, uses in found.items()
        if counts[name] > OTHER_THINGS.get(name, (0, ""))[0]
        for line, what in uses
    ]
    assert not faults, "\n".join(["", *faults])
    gone = [name for name, (number, _) in OTHER_THINGS.items() if counts[name] < number]
    assert not gone, f"take these from the list of exceptions, or lower their number: {gone}"


@pytest.mark.parametrize(
    "source",
    [
        'plan.backend == "slurm"',
        'plan["backend"] != "local"',
        'x in ("local", "slurm")',
        'TABLE = {"slurm": 1}',
        'table["local"]',
        'match name:\n    case "slurm": pass',
        "plan.backend == HERE",
        'cluster.scheduler == "htcondor"',
    ],
)
def test_a_name_in_any_form_is_found(source):
    assert list(names_in(source))


@pytest.mark.parametrize(
    "source", ["abilities(plan.backend).queues", '"on Slurm"', "cluster or HERE", 'plan["backend"]']
)
def test_asking_what_a_back_end_can_is_no_fault(source):
    assert list(names_in(source)) == []
