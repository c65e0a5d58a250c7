"""Signing in as a person does it, in a browser: no token is left in an address, and none is sent in one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cordee.core.web.tokens import Token
from cordee.runs.folder import RunFolder
from support.servers.browsing import chromium
from support.servers.serving import ServedRuns

pytestmark = pytest.mark.usefixtures("real")

SECRET = "0123456789abcdef+/=0123456789abc"
NOBODY = 4_000_000


@pytest.fixture(scope="module")
def guarded(made_folder: RunFolder) -> Iterator[ServedRuns]:
    """A server for which everybody needs a token."""
    with ServedRuns(
        made_folder.root.parent, tokens=[Token("reader", frozenset({"read"}), SECRET)], users=[NOBODY]
    ) as server:
        yield server


@pytest.mark.gate
def test_a_link_with_a_token_signs_in_and_a_form_does(guarded: ServedRuns, made_folder: RunFolder) -> None:
    page_of_run = f"#/run/{made_folder.id}"
    with chromium() as browser:
        for link in (f"#token={SECRET}", f"#token={SECRET}&{page_of_run[1:]}"):
            asked: list[str] = []
            context = browser.new_context()
            tab = context.new_page()
            tab.on("request", lambda request, asked=asked: asked.append(request.url))
            tab.goto(f"{guarded.url}/{link}")
            tab.wait_for_selector("text=Timeline" if "&" in link else "#app main h1")
            assert SECRET not in tab.evaluate("location.href + document.referrer")
            assert tab.evaluate("history.length") <= 3
            assert not any(SECRET in url for url in asked)
            context.close()
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(f"{guarded.url}/{page_of_run}")
        tab.fill("#token", "0" * 32)
        tab.click("button")
        tab.wait_for_selector("text=This token is not known here")
        tab.fill("#token", SECRET)
        tab.click("button")
        tab.wait_for_selector("text=Timeline")
        assert tab.evaluate("location.pathname + location.hash") == f"/{page_of_run}"
        context.close()
