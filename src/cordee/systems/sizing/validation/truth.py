"""Runs a function's model for two steps on the CPU and prints the highest that its allocator held, in bytes."""

# mypy: ignore-errors
from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "trace"))


def main():
    """Print the peak of the request in the first argument."""
    import child
    import torch
    from torch.profiler import ProfilerActivity, profile

    request = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)

    class Uncounted:
        def reset(self):
            pass

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        child.run_function(torch, request, Uncounted())
    events = [one for one in seen.profiler.kineto_results.events() if one.name() == "[memory]"]
    held = peak = 0
    for one in sorted(events, key=lambda event: event.start_ns()):
        held += one.nbytes()
        peak = max(peak, held)
    print(json.dumps({"peak": peak, "events": len(events)}))


if __name__ == "__main__":
    main()
