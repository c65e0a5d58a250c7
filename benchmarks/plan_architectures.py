"""Parameters of every model_type that `transformers` has, by its default config: by readers, by counting, or not at all.

`python benchmarks/plan_architectures.py` prints Markdown. What a reader says is compared with the model on the meta device; what is
counted is that model's own, and only whether it can be is told, with the reason where it cannot.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import multiprocessing.connection
import os
import time
from pathlib import Path
from typing import Any

import transformers

from cordee.core.errors import CordeeError
from cordee.systems.sizing import counted
from cordee.systems.sizing.architecture import architecture_of
from cordee.systems.sizing.readers import READERS

LIMIT_S = 120.0
READ, COUNTED, COUNT_ALONE = "read from the file alone", "counted, with sizes", "counted, number of parameters alone"
REFUSED = "refused by Cordée"
NO_MODEL, NOT_MADE = (
    "parts of models, no model of their own in transformers",
    "transformers does not make it of its default config",
)


def _counter() -> Any:
    """Return what counts in the child of `cordee plan`."""
    path = Path(counted.__file__).parent / "trace" / "sizes.py"
    spec = importlib.util.spec_from_file_location("cordee_plan_sizes", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(kind: str, answers: Any) -> None:
    """Put (how, what `cordee plan` says, what transformers says, why not) of one model_type."""
    right = None
    try:
        counter = _counter()
        text = transformers.CONFIG_MAPPING[kind]().to_json_string(use_diff=False)
        config = json.loads(text)
        found = counter.sizes(json.loads(text, object_hook=counter.number))
        right = found["parameters"]
        known = architecture_of(config, "") if kind in READERS else counted.counted_architecture(config, found)
    except CordeeError as error:
        answers.put((REFUSED, None, right, str(error.text)))
    except BaseException as error:
        how = NO_MODEL if isinstance(error, LookupError) and "has no model of" in str(error) else NOT_MADE
        answers.put((how, None, right, " ".join(f"{type(error).__name__}: {error}".split())[:80].replace("|", "/")))
    else:
        counts = COUNT_ALONE if known.kind == "count" else COUNTED
        answers.put((READ if kind in READERS else counts, known.parameters, right, ""))


def all_measured(kinds: list[str]) -> dict[str, tuple[str, int | None, int | None, str]]:
    """Return what `measured` says of each, each in a process of its own: their classes are many."""
    fork = multiprocessing.get_context("fork")
    found: dict[str, tuple[str, int | None, int | None, str]] = {}
    waiting, running = list(kinds), {}
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            kind, answers = waiting.pop(), fork.SimpleQueue()
            child = fork.Process(target=measured, args=(kind, answers))
            child.start()
            running[kind] = child, answers, time.monotonic() + LIMIT_S
        multiprocessing.connection.wait([child.sentinel for child, _, _ in running.values()], timeout=1)
        for kind, (child, answers, until) in list(running.items()):
            if child.is_alive() and time.monotonic() < until:
                continue
            child.kill()
            found[kind] = (NOT_MADE, None, None, f"no answer in {LIMIT_S:.0f} s") if answers.empty() else answers.get()
            del running[kind]
    return found


def main() -> None:
    """Print sums, what is not read with the reason, what readers say, and the names of what is counted."""
    transformers.logging.set_verbosity_error()
    found = dict(sorted(all_measured(sorted(transformers.CONFIG_MAPPING)).items()))
    errors = {kind: ours / right - 1 for kind, (_, ours, right, _) in found.items() if ours and right}
    good = sum(abs(error) <= 0.001 for error in errors.values())
    possible = sum(how not in (NO_MODEL, NOT_MADE) for how, _, _, _ in found.values())
    print(
        f"{good} of the {possible} model types that transformers {transformers.__version__} makes are within 0.1 %.\n"
    )
    print("| how | model types |\n|---|---|")
    for how in (READ, COUNTED, COUNT_ALONE, REFUSED, NO_MODEL, NOT_MADE):
        print(f"| {how} | {sum(one[0] == how for one in found.values())} |")
    print("\n## Readers\n\n| model_type | ours | transformers | error |\n|---|---|---|---|")
    for kind, (how, ours, right, _) in found.items():
        if how == READ:
            print(f"| {kind} | {ours:,} | {right:,} | {errors[kind]:+.3%} |")
    for title in (REFUSED, NOT_MADE):
        named = [f"| {kind} | {why} |" for kind, (how, _, _, why) in found.items() if how == title]
        print(
            f"\n## {title.capitalize()}\n\n"
            + "\n".join(["| model_type | why |", "|---|---|", *named] if named else ["None."])
        )
    for how in (COUNTED, COUNT_ALONE, NO_MODEL):
        print(f"\n## {how.capitalize()}\n\n" + ", ".join(kind for kind, one in found.items() if one[0] == how))


if __name__ == "__main__":
    main()
