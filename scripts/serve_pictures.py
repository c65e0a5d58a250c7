#!/usr/bin/env python3
"""Draw the documentation's pictures of `cordee serve`: python scripts/serve_pictures.py URL RUN [OTHER] [-o docs/pictures].

URL is where `cordee serve` is; RUN the run to show, OTHER one to compare it with. Needs playwright and Debian's Chromium.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser

from support.servers.browsing import WatchedPage, chromium

DESK, PHONE, WALL = (1440, 900), (390, 844), (2560, 1440)
WAIT_S = 60.0


def shots(run: str, other: str, node: str) -> list[tuple[str, str, tuple[int, int], dict[str, Any]]]:
    """Return (name, address, size, more) of every picture."""
    of = f"#/run/{quote(run, safe='')}"
    return [
        ("runs", "#/runs", DESK, {}),
        ("run", of, (1440, 1300), {}),
        ("run-dark", of, DESK, {"color_scheme": "dark"}),
        ("run-phone", of, PHONE, {}),
        ("run-wall", f"?wall=1{of}", WALL, {}),
        ("heat", f"{of}/heat", DESK, {}),
        ("bands", f"{of}/bands", DESK, {}),
        ("nodes", f"{of}/nodes", DESK, {}),
        ("node", f"{of}/node/{quote(node, safe='')}", DESK, {}),
        ("rank", f"{of}/rank/0", (1440, 1200), {}),
        ("logs", f"{of}/logs", DESK, {}),
        ("findings", f"{of}/findings", DESK, {}),
        ("hangs", f"{of}/hangs", DESK, {}),
        ("score", f"{of}/score", DESK, {}),
        ("storage", f"{of}/storage", (1440, 1200), {}),
        ("data", f"{of}/data", (1440, 1200), {}),
        ("compare", f"#/compare?runs={quote(run)},{quote(other)}", DESK, {}),
        ("fleet", f"#/fleet?run={quote(run)}", DESK, {}),
        ("catalogue", "#/catalogue", DESK, {}),
    ]


def take(browser: Browser, url: str, shot: tuple[str, str, tuple[int, int], dict[str, Any]], folder: Path) -> None:
    """Take one picture, once everything on the screen is there and the score is computed."""
    name, address, (width, height), more = shot
    tab = WatchedPage(browser, url, viewport={"width": width, "height": height}, reduced_motion="reduce", **more)
    page = tab.open(address)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and page.get_by_text("is being computed").count():
        page.wait_for_timeout(500)
    page.wait_for_timeout(1500)
    tab.settled()
    path = folder / f"serve-{name}.png"
    page.screenshot(path=path)
    tab.close()
    print(f"{path} {path.stat().st_size / 1000:.0f} kB", *tab.faults)


def main() -> None:
    """Take all pictures, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("run")
    parser.add_argument("other", nargs="?")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/pictures"))
    parser.add_argument("--node", default="local-0", help="the node whose page is shown (default: local-0)")
    parser.add_argument("--only", help="names, separated by commas")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    wanted = set(given.only.split(",")) if given.only else None
    with chromium() as browser:
        for shot in shots(given.run, given.other or given.run, given.node):
            if wanted is None or shot[0] in wanted:
                take(browser, given.url.rstrip("/"), shot, given.output)


if __name__ == "__main__":
    main()
