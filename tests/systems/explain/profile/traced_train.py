"""A script that knows nothing of Cordée: it trains, and uses torch.profiler itself when a file of that name appears."""

import json
import os
import sys
import time

import torch
from torch.profiler import ProfilerAction, profile

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)])
optimizer = torch.optim.SGD(model.parameters(), 0.01)
prepare = torch.autograd.profiler._prepare_profiler


def train() -> None:
    optimizer.zero_grad()
    model(torch.ones(4, 16)).sum().backward()
    if "no-steps" not in sys.argv:
        optimizer.step()
    time.sleep(0.01)


def done(name: str) -> None:
    """Say how many steps the script's own trace shows."""
    with open("own.json") as file:
        steps = sum(event["name"] == "Optimizer.step#SGD.step" for event in json.load(file)["traceEvents"])
    with open("own.writing", "w") as file:
        file.write(str(steps))
    os.rename("own.writing", f"{name}-steps")
    os.unlink(name)


def warm_up() -> None:
    """Warm up until the test has seen what happens meanwhile, then record three steps."""
    recorded = 0

    def schedule(_: int) -> ProfilerAction:
        nonlocal recorded
        recorded += os.path.exists("go-on")
        actions = (ProfilerAction.WARMUP, ProfilerAction.RECORD, ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        return actions[recorded] if recorded < len(actions) else ProfilerAction.NONE

    with profile(schedule=schedule, on_trace_ready=lambda own: own.export_chrome_trace("own.json")) as own:
        while recorded < 4:
            train()
            own.step()


def at_once() -> None:
    with profile() as own:
        for _ in range(4):
            train()
    own.export_chrome_trace("own.json")


train()
open("ready", "w").close()
while not os.path.exists("end"):
    train()
    for work in (warm_up, at_once):
        if os.path.exists(work.__name__):
            work()
            done(work.__name__)
print("left as it was" if torch.autograd.profiler._prepare_profiler is prepare else "something stays", flush=True)
