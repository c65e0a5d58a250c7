"""Changes of variables, as views and start-up commands make them: a value set, a list made longer at an end, a variable unset.

A patch is (operation, name, value). Lists are those with colons between their parts. The engine uses this module in front of
commands, so it imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Patch = tuple[str, str, str]

SET, PREPEND, APPEND, UNSET = "set", "prepend", "append", "unset"
# Where a shell went is no part of what it leaves.
_OF_A_SHELL = ("PWD", "OLDPWD")


def patched(env: Mapping[str, str], patches: Iterable[Patch]) -> dict[str, str]:
    """Return variables with changes made, in their order."""
    found = dict(env)
    for operation, name, value in patches:
        there = found.get(name, "")
        if operation == UNSET:
            found.pop(name, None)
        elif operation == SET or not there:
            found[name] = value
        else:
            found[name] = f"{value}:{there}" if operation == PREPEND else f"{there}:{value}"
    return found


def patches_between(before: Mapping[str, str], after: Mapping[str, str]) -> list[Patch]:
    """Return what makes one environment of the other; a list that only got longer is a patch at its end, so that it holds
    over another one as well."""
    found: list[Patch] = [(UNSET, name, "") for name in before if name not in after]
    found = [patch for patch in found if patch[1] not in _OF_A_SHELL]
    for name, value in after.items():
        old = before.get(name)
        if old == value or name in _OF_A_SHELL:
            continue
        if old and value.endswith(f":{old}"):
            found.append((PREPEND, name, value[: -len(old) - 1]))
        elif old and value.startswith(f"{old}:"):
            found.append((APPEND, name, value[len(old) + 1 :]))
        else:
            found.append((SET, name, value))
    return found
