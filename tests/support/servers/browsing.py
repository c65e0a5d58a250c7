"""A browser for tests of the pages: Debian's Chromium, and what a page must never do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, expect, sync_playwright

PROGRAM = "/usr/bin/chromium"
DEADLINE_MS = 90_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser."""
    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=PROGRAM, args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=DEADLINE_MS
        )
        try:
            yield browser
        finally:
            browser.close()


class WatchedPage:
    """A page and everything it did that no page may do.

    Attributes:
        faults: what the console complained of, scripts that failed, dialogs, requests to other hosts.
    """

    def __init__(self, browser: Browser, url: str, **context: Any) -> None:
        self.url = url
        self.faults: list[str] = []
        self.context = browser.new_context(**context)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(DEADLINE_MS)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", self._request)

    def open(self, address: str) -> Page:
        """Open `#/...` and wait until its heading is there and nothing is being loaded."""
        self.page.goto(f"{self.url}/{address}")
        self.settled()
        return self.page

    def settled(self) -> None:
        """Wait until the page has its heading, and all of it that is on the screen is there."""
        self.page.wait_for_selector("main h1", state="attached")
        self.page.wait_for_function(
            """() => ![...document.querySelectorAll("main .loading")]
                .some((one) => one.getBoundingClientRect().top < innerHeight)"""
        )

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Any) -> None:
        asked, here = urlsplit(request.url), urlsplit(self.url)
        if asked.scheme not in ("data", "blob") and (asked.scheme, asked.netloc) != (here.scheme, here.netloc):
            self.faults.append(f"request: {request.url}")

    def close(self) -> None:
        """Close the page."""
        self.context.close()
