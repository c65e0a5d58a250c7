"""The heat map of a large run in Chromium: first paint, sorting, and the time of frames while it is zoomed and moved.

Example: python benchmarks/serve_browser.py --gpus 10752 --seconds 600

Makes a run (nothing in it is measured), serves it with `cordee serve`, opens the heat map in Debian's Chromium, headless, and
prints one JSON document. Times are milliseconds; frames are the differences between the times of requestAnimationFrame while
the mouse's wheel zooms in and out and a drag moves the map, 60 times a second. Chromium draws without a GPU here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from support.made.runs import MadeRun, write_run
from support.servers.browsing import chromium

PORT = 18_473
DEADLINE_MS = 300_000
FRAMES = """() => {
    const frames = (window.frames_ = []);
    let last = 0;
    window.recording_ = true;
    const next = (now) => {
        if (last) frames.push(now - last);
        last = now;
        if (window.recording_) requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=10_752)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3, help="how often the page is opened")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = MadeRun(given.gpus, given.seconds, metrics={"gpu": ("gpu_sm_ratio", "gpu_power_watts")})
        run = write_run(folder, made)
        argv = [sys.executable, "-m", "cordee.faces.cli", "serve", "--runs", folder, "--port", str(PORT)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            try:
                with chromium() as browser:
                    rounds = [
                        measure(browser.new_page(viewport={"width": 1600, "height": 1000}), url, run.id)
                        for _ in range(given.rounds)
                    ]
                    version = browser.version
            finally:
                server.terminate()
    found = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
    print(
        json.dumps({"gpus": given.gpus, "columns": given.seconds, **machine(), "chromium": version, **found}, indent=1)
    )
    return 0


def measure(page: Page, url: str, run: str) -> dict[str, float]:
    """Open the map, zoom, move and sort it; return milliseconds."""
    page.set_default_timeout(DEADLINE_MS)
    page.goto(f"{url}#/run/{run}/heat?metric=gpu_sm_ratio")
    page.wait_for_function("() => performance.getEntriesByName('heat-picture').length")
    found = {
        "first_paint_ms": marked(page, "heat-overview"),
        "all_rows_painted_ms": marked(page, "heat-picture"),
    }
    page.wait_for_timeout(1_000)
    box = page.locator(".heat-field canvas").bounding_box()
    assert box is not None
    page.evaluate(FRAMES)
    wheel(page, box, -40, 60)
    drag(page, box)
    wheel(page, box, 40, 60)
    page.evaluate("() => { window.recording_ = false; }")
    frames = page.evaluate("() => window.frames_")
    found |= summary(frames)
    page.wait_for_timeout(500)
    for value in ("deviation", "first", "mean"):
        before = page.evaluate("() => performance.now()")
        page.get_by_label("Sort by").select_option(value)
        page.wait_for_function(
            f"() => performance.getEntriesByName('heat-picture').some((one) => one.startTime > performance.getEntriesByName('heat-sorted')[0].startTime && one.startTime > {before})"
        )
        found[f"sort_by_{value}_ms"] = marked(page, "heat-picture") - before
    page.close()
    return found


def wheel(page: Page, box: Any, by: float, count: int) -> None:
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.4)
    for _ in range(count):
        page.mouse.wheel(0, by)
        time.sleep(1 / 60)


def drag(page: Page, box: Any) -> None:
    page.keyboard.down("Shift")
    page.mouse.down()
    for at in range(60):
        page.mouse.move(box["x"] + box["width"] * 0.6 - 4 * at, box["y"] + box["height"] * 0.4 + 2 * at)
        time.sleep(1 / 60)
    page.mouse.up()
    page.keyboard.up("Shift")


def marked(page: Page, name: str) -> float:
    found = page.evaluate("(name) => performance.getEntriesByName(name)[0]?.startTime", name)
    return float(found) if found is not None else float("nan")


def summary(frames: list[float]) -> dict[str, float]:
    ordered = sorted(frames)
    return {
        "frames": len(ordered),
        "frame_median_ms": statistics.median(ordered),
        "frame_p95_ms": ordered[int(0.95 * (len(ordered) - 1))],
        "frame_longest_ms": ordered[-1],
        "frames_over_20_ms": sum(one > 20 for one in ordered),
    }


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return {"cpu": model, "cores": os.cpu_count(), "load_1m": os.getloadavg()[0], "python": platform.python_version()}


if __name__ == "__main__":
    sys.exit(main())
