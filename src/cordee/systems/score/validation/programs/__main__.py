"""Runs one workload: `... NAME --seconds S --marks FILE [--with '{"share": 0.5}']`; `probe` says what there is."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from cordee.machine.probes.common import Obstacle, gpus, import_torch
from cordee.systems.score.validation.programs import cores, gpu, loaders
from cordee.systems.score.validation.programs.steady import Steady

PROGRAMS = {
    "gemm": gpu.gemm,
    "triad": gpu.triad,
    "hold": gpu.hold,
    "fma": gpu.fma,
    "chase": gpu.chase,
    "copies": gpu.copies,
    "tiny": gpu.tiny,
    "decoding": loaders.decoding,
    "sleeping": loaders.sleeping,
    "saving": loaders.saving,
    "busy": cores.busy,
    "duty": cores.duty,
    "pause": cores.pause,
}
WITHOUT_TORCH = ("busy", "duty", "pause")


def main() -> None:
    """Run the workload; what stands in its way is one line of JSON `{"cannot", "cause"}` on standard output and exit code 3."""
    parser = argparse.ArgumentParser(prog="programs", description=__doc__)
    parser.add_argument("name", choices=["probe", *PROGRAMS])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--marks", type=Path, default=Path("marks.json"))
    parser.add_argument("--with", dest="given", type=json.loads, default={})
    asked = parser.parse_args()
    try:
        if asked.name == "probe":
            print(json.dumps(probe()))
            return
        if asked.name == "saving":
            asked.given.setdefault("folder", str(asked.marks.parent))
        steady = Steady(asked.seconds)
        torch = None if asked.name in WITHOUT_TORCH else import_torch()
        if torch is not None and asked.given.get("device") != "cpu":
            gpus(torch)
        program: Any = PROGRAMS[asked.name]
        steady.write(asked.marks, program(torch, steady, **asked.given))
    except Obstacle as obstacle:
        print(json.dumps({"cannot": str(obstacle), "cause": obstacle.cause}))
        sys.exit(3)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # workers of a loader that still sleep are not waited for


def probe() -> dict[str, Any]:
    """Return `{gpus: [{uuid, model}], torch, cuda, why}`; `why` says what keeps torch from a GPU."""
    if importlib.util.find_spec("torch") is None:
        return {"gpus": [], "torch": "", "cuda": "", "why": f"{sys.executable} has no torch"}
    torch = import_torch()
    try:
        found = [{"uuid": one.uuid, "model": one.model} for one in gpus(torch)]
        why = ""
    except Obstacle as obstacle:
        found, why = [], str(obstacle)
    return {"gpus": found, "torch": torch.__version__, "cuda": torch.version.cuda or "", "why": why}


if __name__ == "__main__":
    main()
