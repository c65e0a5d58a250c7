"""The pages of `cordee serve` in a real browser, over a run that goes on and a made one whose names are markup."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from support.made.runs import MadeRun, write_run
from support.servers.browsing import WatchedPage, chromium

MARKUP = "<img src=x onerror=alert(3)>"
ODD = f"{MARKUP}-20261121T204927Z-abcd"


CORDEE = [sys.executable, "-m", "cordee.faces.cli"]
DEADLINE_S = 90

SCRIPT = """
import os, sys, time
import cordee

folder = os.environ["STOP_BELOW"]
rank = int(os.environ["RANK"])
for line in range(6000 if rank == 0 else 3):
    print(f"rank {rank} line {line} <img src=x onerror=alert(1)>")
for line in range(3):
    print(f"\\x1b[31mred words {line}\\x1b[0m on standard error", file=sys.stderr, flush=True)
step = 0
while not os.path.exists(os.path.join(folder, "stop")):
    cordee.log(step=step, loss=10 / (1 + step), tokens_per_s=1000.0 + rank, steps=100000, **{"<img src=x onerror=alert(2)>": 1.0})
    if step % 10 == 0:
        print(f"step {step}", flush=True)
    step += 1
    time.sleep(0.1)
"""


class Server:
    """`cordee serve` over a folder of runs, on a port that stays the same when it is started again."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.port = 0
        self.url = ""
        self._child: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it and wait until it says where it is."""
        self._child = subprocess.Popen(
            [*CORDEE, "serve", "--runs", str(self.runs), "--port", str(self.port), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._child.stdout is not None
        text = ""
        for line in self._child.stdout:
            text += line
            if line.rstrip() == "}":
                break
        self.url = json.loads(text)["url"].rstrip("/")
        self.port = int(self.url.rpartition(":")[2])

    def stop(self) -> None:
        """Stop it as with Ctrl-C."""
        if self._child is None:
            return
        self._child.send_signal(signal.SIGINT)
        try:
            self._child.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        assert self._child.stdout is not None
        self._child.stdout.close()
        self._child = None


def start_run(folder: Path, runs: Path) -> str:
    """Start a run of two ranks that goes on until there is a file `stop` in `folder`; return its id."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "cordee.toml").write_text(
        'name = "live"\nrun = "python train.py"\n[need]\nnodes = 2\nranks_per_node = 1\n'
    )
    ran = subprocess.run(
        [*CORDEE, "run", str(folder), "--runs", str(runs), "--detach", "--json"],
        env={**os.environ, "STOP_BELOW": str(folder)}, stdout=subprocess.PIPE, check=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    return str(json.loads(ran.stdout)["run"])


def of_run(run: str, *parts: str) -> str:
    return "#/run/" + "/".join(quote(part, safe="") for part in (run, *parts))


@pytest.fixture(scope="module")
def world(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A browser, a server, a run that goes on until `stop()`, and a made run of 8 GPUs with odd names."""
    home = tmp_path_factory.mktemp("pages")
    runs = home / "runs"
    runs.mkdir()
    made = write_run(runs, MadeRun(8, 60, name="made", node_name=MARKUP + "{}"), seal=False)
    made.root.rename(runs / ODD)
    server = Server(runs)
    live = start_run(home / "project", runs)
    server.start()
    try:
        with chromium() as browser:
            yield SimpleNamespace(
                browser=browser, server=server, live=live, stop=(home / "project" / "stop").touch, runs=runs
            )
    finally:
        (home / "project" / "stop").touch()
        server.stop()


@pytest.fixture
def tab(world: SimpleNamespace) -> Iterator[WatchedPage]:
    """A tab on a desk's screen; whatever no page may do fails the test."""
    watched = WatchedPage(world.browser, world.server.url, viewport={"width": 1440, "height": 900})
    yield watched
    watched.close()
    assert not watched.faults


def pages(run: str, node: str) -> dict[str, str]:
    """Addresses of all pages and what stands on each."""
    below = {
        (): "Timeline", ("nodes",): node, ("node", node): "Vetting", ("rank", "0"): "What it printed",
        ("logs",): "line", ("findings",): "Findings", ("score",): "Score", ("storage",): "Storage", ("data",): "Data",
        ("topology",): "Nodes in their switches",
    }  # fmt: skip
    return {
        "#/runs": run, "#/fleet": "Nodes", "#/catalogue": "Catalogue", f"#/compare?runs={quote(run)}": "Settings",
        **{of_run(run, *parts): words for parts, words in below.items()},
    }  # fmt: skip


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_every_page_shows_names_that_are_markup_as_text(tab: WatchedPage) -> None:
    for address, words in pages(ODD, f"{MARKUP}0").items():
        page = tab.open(address)
        expect(page.locator("#app")).to_contain_text(words)
        assert page.locator("[onerror], img:not([src='static/icon.svg'])").count() == 0, address
        assert page.locator("main h1").count() == 1, address
    tab.open(of_run(ODD, "findings"))
    expect(tab.page.locator("main")).to_contain_text(f"on {MARKUP}0 was killed")


def test_a_run_is_followed_without_loading_the_page_again(tab: WatchedPage, world: SimpleNamespace) -> None:
    page = tab.open(of_run(world.live))
    page.evaluate("window.kept = true")
    step = page.locator(".figures div", has_text="step").filter(has_text="100 000").locator("dd")
    expect(step).to_be_visible()
    first = step.inner_text()
    expect(step).not_to_have_text(first)
    expect(page.locator(".fresh")).to_contain_text("live")
    expect(page.locator("[data-metric=loss] canvas")).to_be_visible()
    expect(page.locator("[data-metric='<img src=x onerror=alert(2)>'] h3")).to_have_text("<img src=x onerror=alert(2)>")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.locator(".resource .figures").first).to_contain_text("now")
    assert page.evaluate("window.kept")


ALL_LINES = """() => {
  const older = [...document.querySelectorAll("button")].find((one) => one.textContent === "Older lines");
  if (older.disabled) return document.querySelector(".lone").textContent.includes("from the beginning");
  older.click();
  return false;
}"""


def test_logs_are_followed_filtered_and_only_what_is_seen_is_in_the_page(
    tab: WatchedPage, world: SimpleNamespace
) -> None:
    page = tab.open(of_run(world.live, "rank", "0"))
    lines = page.locator(".log .line")
    last = lines.last.inner_text()
    expect(lines.last).not_to_have_text(last)
    page.wait_for_function(ALL_LINES, polling=100)
    page.locator(".log").evaluate("(log) => { log.scrollTop = 0 }")
    expect(page.locator(".log")).to_contain_text("rank 0 line 0 <img src=x onerror=alert(1)>")
    assert lines.count() < 150
    page.get_by_label("Lines with").fill("RED words 2")
    expect(page.locator(".log .line")).to_have_count(1)
    expect(page.locator(".log .line.err mark")).to_have_text("red words 2")


def test_everything_is_reached_by_keyboard(tab: WatchedPage) -> None:
    page = tab.open("#/runs")
    page.keyboard.press("j")
    expect(page.locator("tr:focus-within")).to_have_count(1)
    page.keyboard.press("x")
    expect(page.get_by_role("region", name="Chosen runs")).to_contain_text("1 run chosen")
    page.keyboard.press("/")
    expect(page.locator("[data-search]")).to_be_focused()
    page.keyboard.type("no such run")
    expect(page.locator("main")).to_contain_text("No run matches")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.locator("main h1")).to_have_text("Fleet")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("next and previous row")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    tab.open(of_run(ODD))
    page.keyboard.press("+")
    page.wait_for_url("**start=*")
    whole = page.url
    page.keyboard.press("[")
    page.wait_for_function("(before) => location.href !== before", arg=whole)
    page.keyboard.press("0")
    page.wait_for_function("!location.href.includes('start=')")
    page.keyboard.press("4")
    expect(page.locator("main h1")).to_have_text("Nodes")


def test_no_page_scrolls_sideways_from_a_phone_to_a_wall(world: SimpleNamespace) -> None:
    everywhere = list(pages(ODD, f"{MARKUP}0"))
    for size, before, addresses in (
        ((360, 740), "", everywhere),
        ((3840, 2160), "?wall=1", ["#/runs", "#/fleet", of_run(ODD)]),
    ):
        watched = WatchedPage(world.browser, world.server.url, viewport={"width": size[0], "height": size[1]})
        for address in addresses:
            page = watched.open(before + address)
            beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(beyond) <= 0, (size, address)
        assert page.locator(".tools").is_visible() == (before == "")
        watched.close()
        assert not watched.faults


NAMELESS = """() => [...document.querySelectorAll('a[href], button, input, select, [role=img], [role=region], [role=progressbar]')]
  .filter((one) => !(one.getAttribute('aria-label') || one.labels?.length || one.textContent.trim() || one.getAttribute('aria-labelledby')))
  .map((one) => one.outerHTML.slice(0, 200))"""
CONTRASTS = """async () => {
  const { colour } = await import(new URL('static/colours.js', document.baseURI).href);
  const light = (name) => {
    const parts = colour(name).match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = {};
  for (const ground of ['bg', 'surface', 'raised']) {
    for (const ink of ['fg', 'soft', 'accent', 'good', 'bad', 'warn', 'ask', 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6']) {
      const [one, other] = [light(ground), light(ink)];
      found[`${ink} on ${ground}`] = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    }
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_curves_stand_out_and_every_control_has_a_name(world: SimpleNamespace, scheme: str) -> None:
    watched = WatchedPage(world.browser, world.server.url, color_scheme=scheme, viewport={"width": 1440, "height": 900})
    for address in (of_run(ODD), "#/runs", "#/fleet", of_run(ODD, "rank", "0")):
        page = watched.open(address)
        assert page.evaluate(NAMELESS) == [], address
        for landmark in ("banner", "main", "navigation"):
            assert page.get_by_role(landmark).count() >= 1, address
    for pair, ratio in page.evaluate(CONTRASTS).items():
        least = 3.0 if pair[0] == "c" and pair[1].isdigit() else 4.5
        assert ratio >= least, (scheme, pair)
    watched.close()
    assert not watched.faults


def test_the_theme_that_was_chosen_is_kept(tab: WatchedPage) -> None:
    page = tab.open("#/runs")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    tab.settled()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"


def test_the_theme_key_counts_each_time_however_fast_it_is_pressed(tab: WatchedPage) -> None:
    page = tab.open("#/runs")
    page.evaluate("""() => ["t", "t"].forEach((key) =>
        document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })))""")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_runs_are_filtered_chosen_and_compared(tab: WatchedPage, world: SimpleNamespace) -> None:
    page = tab.open("#/runs")
    rows = page.locator("tr[data-row]")
    expect(rows).to_have_count(2)
    page.get_by_label("Name, node, reason").fill("onerror")
    expect(rows).to_have_count(1)
    page.get_by_label("Name, node, reason").fill("")
    for run in (ODD, world.live):
        page.get_by_label(f"Compare {run}").check()
    page.get_by_role("link", name="Compare").click()
    expect(page.locator("main canvas")).to_be_visible()
    expect(page.locator(".table[aria-label='Last values']").locator("tbody tr")).to_have_count(2)
    expect(page.locator(".table[aria-label='Settings that differ']")).to_contain_text("train.py")
    page.get_by_role("button", name="time since start").click()
    expect(page.locator(".table[aria-label='Last values']")).to_contain_text("Lasted")


def test_what_pages_compute_is_right(tab: WatchedPage) -> None:
    page = tab.open("#/runs")

    def of(file: str, expression: str) -> object:
        return page.evaluate(f"import(new URL('static/{file}', document.baseURI).href).then((all) => {expression})")

    assert of("parts/outlier.js", "all.standsOut([0.9, 0.91, 0.89, NaN, 0.92, 0.5], 'ratio')")["at"] == 5
    assert of("parts/outlier.js", "all.standsOut([0.9, 0.91, 0.89, 0.92, 0.9], 'ratio')") is None
    assert of("parts/outlier.js", "all.standsOut([1, 1, 9], '')") is None  # too few to say
    curves = "[{x: [0, 2], mean: [1, 3]}, {x: [0, 1, 5], mean: [7, null, 9]}]"
    merged = of("pages/compare.js", f"all.aligned({curves}).columns.map((column) => column.map((one) => String(one)))")
    assert merged == [["1", "2", "3", "NaN"], ["7", "NaN", "NaN", "9"]]
    lines = "[{time: 1, text: 'a'}, {time: 5, text: 'b'}]"
    news = "[{time: 4, text: 'late'}, {time: 5, text: 'b'}, {time: 6, text: 'c'}]"
    assert of("parts/logview.js", f"all.joined({lines}, {news}, 2).map((line) => line.text).join()") == "a,late,b,c"
    assert of("format.js", "all.ranges([5, 0, 1, 2, 7])") == "0–2, 5, 7"
    assert of("format.js", "[all.duration(59.6), all.duration(3725), all.duration(NaN)]") == ["1 min", "1 h 2 min", "–"]
    assert of("format.js", "[all.quantity(999.9e6, 'bytes'), all.quantity(NaN, 'ratio')]") == ["1 GB", "–"]
    assert of("routes.js", "all.matched('#/run/a%2Fb/rank/3?x=1').params") == {"run": "a/b", "rank": "3"}


def test_bad_addresses_say_what_is_wrong_and_where_to_go(world: SimpleNamespace) -> None:
    watched = WatchedPage(world.browser, world.server.url)
    for address, words in {
        "#/nowhere": "There is no page at this address",
        "#/run/no-such-run": "Back to all runs",
        of_run(ODD, "rank", "999"): "0 to 7",
        of_run(ODD, "node", "nobody"): "allowed",
        "#/%E0%A4%A": "There is no page at this address",
        f"{of_run(ODD)}?start=x&stop=NaN&last=-1": "Timeline",
    }.items():
        watched.page.goto(f"{world.server.url}/{address}")
        expect(watched.page.locator("main")).to_contain_text(words)
    watched.close()
    assert not [fault for fault in watched.faults if "404" not in fault]


def test_a_hidden_tab_closes_its_stream_and_comes_back(tab: WatchedPage, world: SimpleNamespace) -> None:
    page = tab.page
    page.clock.install()
    tab.open(of_run(world.live, "nodes"))
    hide = "(hidden) => { Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden }); document.dispatchEvent(new Event('visibilitychange')); }"
    expect(page.locator(".fresh")).to_contain_text("live")
    page.evaluate(hide, True)
    page.clock.fast_forward(10_000)
    expect(page.locator(".fresh")).to_contain_text("paused")
    page.evaluate(hide, False)
    expect(page.locator(".fresh")).to_contain_text("live")


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_a_server_that_is_killed_and_restarted_is_found_again(world: SimpleNamespace) -> None:
    watched = WatchedPage(world.browser, world.server.url, viewport={"width": 1440, "height": 900})
    page = watched.open(of_run(world.live))
    expect(page.locator(".fresh")).to_contain_text("live")
    page.evaluate("window.kept = true")
    world.server.stop()
    expect(page.locator(".fresh")).to_contain_text("disconnected")
    world.server.start()
    expect(page.locator(".fresh")).to_contain_text("live")
    expect(page.locator(".note.bad")).to_have_count(0)
    assert page.evaluate("window.kept")
    world.stop()
    expect(page.locator(".crumbs .badge").first).to_have_text("finished")
    expect(page.locator("[role=status].hidden")).to_have_text("The run is now finished")
    assert page.evaluate("window.kept")
    watched.close()
