"""The page of services in `cordee serve`, in a real browser: how each is and why, where it answers, and what it has used."""

from __future__ import annotations

import shutil
import subprocess
import sys

import httpx
import pytest
from playwright.sync_api import expect
from tests.systems.services.conftest import BLUEPRINT

from support.servers.browsing import WatchedPage, chromium
from support.servers.serving import ServedRuns

pytestmark = pytest.mark.usefixtures("real")

MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture
def damaged(services):
    folder = services.root("damaged")
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.gate
def test_the_page_says_how_services_are_and_hides_what_only_their_owner_may_know(services, damaged, tmp_path):
    services.write(f'project = "{MARKUP}"\nowner = "anna"\n' + BLUEPRINT)
    code, now, said = services.call("deploy", str(services.blueprint), "--json")
    assert code == 0, said
    (damaged / "service.json").write_text("{")
    (tmp_path / "runs").mkdir()
    url, token = now["endpoints"][0]["url"], (services.root() / "secrets" / "token").read_text()
    with ServedRuns(tmp_path / "runs") as server, chromium() as browser:
        answer = httpx.get(f"{server.url}/api/services", timeout=60)
        row = {one["name"]: one for one in answer.json()["services"]}["echo"]
        assert row["used"]["hours"] > 0
        assert 0 <= row["unused_s"] < 60
        assert token not in answer.text
        assert str(services.root()) not in answer.text.replace(str(damaged), "")

        tab = WatchedPage(browser, server.url, viewport={"width": 390, "height": 844})
        page = tab.open("#/services")
        expect(page.locator("[data-row=echo]")).to_contain_text("asked GET http://127.0.0.1:")
        expect(page.locator("[data-row=echo]")).to_contain_text(MARKUP)
        expect(page.locator("[data-row=damaged]")).to_contain_text("cannot be read")
        expect(page.get_by_role("link", name=url)).to_have_attribute("href", url)
        expect(page.get_by_role("navigation", name="Pages").get_by_text("Services")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways on a phone"
        # In a process of its own: the browser's loop runs in this one.
        subprocess.run([sys.executable, "-m", "cordee.faces.cli", "service", "stop", "echo"], check=True)
        expect(page.locator("[data-row=echo]")).to_contain_text("it was asked to end")
        assert not tab.faults
        tab.close()


def test_a_damaged_service_hides_neither_the_others_nor_itself(services, damaged):
    assert services.call("deploy", str(services.blueprint), "--json")[0] == 0
    (damaged / "service.json").write_text('{"schema": 1}')
    _, now, _ = services.call("status", "--json")
    assert {one["name"]: one["state"] for one in now["services"]} == {"damaged": "unknown", "echo": "ready"}
    _, document, said = services.call("usage", "--json")
    assert [row["service"] for row in document["usage"]] == ["echo"], said
