"""Runs a function's model for two steps and prints the highest that its allocator held, in bytes: of the CPU, or of a GPU."""

# mypy: ignore-errors
from __future__ import annotations

import bisect
import gc
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "trace"))


class Uncounted:
    """Stands for what counts a trace."""

    def reset(self):
        """Do nothing."""


STEP = "step of a rank"


def highest(torch, call):
    """Return the highest sum of the CPU's allocations while `call` runs, in bytes.

    Where it marks its steps, the least of their peaks: threads of Gloo free what they have sooner or later, some of it
    unseen by the profiler. What is allocated again must have been freed.
    """
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    events = sorted(_all(seen.profiler.kineto_results.experimental_event_tree()), key=lambda one: one.start_time_ns)
    held, peaks, starts, sizes = 0, [0], [], {}
    for one in events:
        if one.name == STEP:
            peaks.append(held)
        elif one.name == "[memory]":
            start, size = one.extra_fields.ptr, one.extra_fields.alloc_size
            first, last = bisect.bisect_left(starts, start), bisect.bisect_left(starts, start + max(size, 1))
            if first and size > 0 and starts[first - 1] + sizes[starts[first - 1]] > start:
                first -= 1
            held -= sum(sizes.pop(freed) for freed in starts[first:last])
            starts[first:last] = []
            if size > 0:
                starts.insert(first, start)
                sizes[start] = size
                held += size
                peaks[-1] = max(peaks[-1], held)
    return min(peaks[2:] or peaks)


def _all(events):
    for one in events:
        yield one
        yield from _all(one.children)


def warm_up(torch):
    """Let libraries take the workspaces that they keep: cuBLAS takes one for each thread and stream, and backward has a thread."""
    for kind in (torch.float32, torch.bfloat16):
        part = torch.nn.Linear(64, 64, dtype=kind)
        part(torch.ones(64, 64, dtype=kind)).sum().backward()
    torch.cuda.synchronize()


def on_gpu(torch, call):
    """Return what a call's tensors took on a GPU, what its allocator kept, and what the context takes beside it, in bytes."""
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    free, whole = torch.cuda.mem_get_info()
    context = whole - free - torch.cuda.memory_reserved()
    return torch.cuda.max_memory_allocated() - before, torch.cuda.max_memory_reserved() + context


def main():
    """Print the peaks of the requests in the first argument, one line for each, and why one could not be run."""
    import child
    import torch

    torch.set_num_threads(1)
    requests = json.loads(sys.argv[1])
    gpu = requests[0].get("device") == "cuda"
    if gpu:
        torch.set_default_device("cuda")
        warm_up(torch)
    for request in requests:
        torch.manual_seed(0)

        def call(request=request):
            child.run_function(torch, request, Uncounted())

        peak = kept = None
        why = ""
        try:
            peak, kept = on_gpu(torch, call) if gpu else (highest(torch, call), None)
        except Exception as error:  # the others may do better
            why = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:120]}"
        print(json.dumps({"peak": peak, "kept": kept, "why": why}), flush=True)


if __name__ == "__main__":
    main()
