"""The heat map and the bands in a real browser: 10,752 GPUs, one that goes on, one whose nodes have markup for names."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

import cordee
from cordee.runs.folder import RunFolder
from support.made.runs import MadeRun, follow_run, write_run
from support.recordings.recording import gpu_uuid
from support.servers.browsing import WatchedPage, chromium
from support.servers.serving import ServedRuns

GPUS, SECONDS = 10_752, 300
MARKUP = "<img src=x onerror=alert(1)>"
DEADLINE_S = 90
BIG = MadeRun(
    GPUS, SECONDS, name="big", metrics={"gpu": ("gpu_sm_ratio", "gpu_power_watts")}, started_at=1_790_000_000.0
)
# Cividis at ten places, evenly spaced.
CIVIDIS = [
    (0, 34, 78), (18, 53, 112), (59, 73, 108), (87, 93, 109), (112, 113, 115),
    (138, 134, 120), (165, 156, 116), (195, 179, 105), (225, 204, 85), (254, 232, 56),
]  # fmt: skip
MISSING = {(236, 239, 242), (176, 184, 193)}
ABOVE = {(194, 24, 91), (255, 255, 255)}


@pytest.fixture(scope="module")
def world(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A browser and a server over a run of 10,752 GPUs and one whose nodes have odd names."""
    runs = tmp_path_factory.mktemp("heat")
    big = write_run(runs, BIG)
    odd = write_run(runs, MadeRun(16, 60, name="odd", node_name=MARKUP + "{}", metrics={"gpu": ("gpu_sm_ratio",)}))
    with ServedRuns(runs) as served, chromium() as browser:
        yield SimpleNamespace(browser=browser, url=served.url, runs=runs, big=big, odd=odd)


@pytest.fixture
def tab(world: SimpleNamespace) -> Iterator[WatchedPage]:
    """A tab on a desk's screen; whatever no page may do fails the test."""
    yield from watched(world, viewport={"width": 1300, "height": 950}, color_scheme="light")


@pytest.fixture
def phone(world: SimpleNamespace) -> Iterator[WatchedPage]:
    """A phone whose owner wants nothing to move."""
    shape = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    yield from watched(world, **shape, reduced_motion="reduce", color_scheme="dark")


def watched(world: SimpleNamespace, **context: Any) -> Iterator[WatchedPage]:
    found = WatchedPage(world.browser, world.url, **context)
    yield found
    found.close()
    assert not found.faults


def open_map(tab: WatchedPage, run: RunFolder, **query: str) -> None:
    """Open the heat map, or another view of it, and wait until all of its rows are there and painted."""
    said = "&".join(f"{name}={value}" for name, value in query.items())
    tab.page.goto(f"{tab.url}/#/run/{run.id}/heat?{said}")
    tab.page.wait_for_selector("text=columns of")
    painted(tab)


def painted(tab: WatchedPage) -> None:
    """Wait until the picture stays as it is, and is none of one colour."""
    before = [""]

    def same() -> bool:
        body = """() => {
            const small = Object.assign(document.createElement("canvas"), { width: 120, height: 120 });
            small.getContext("2d").drawImage(document.querySelector(".heat-field canvas"), 0, 0, 120, 120);
            return small.toDataURL();
        }"""
        now = tab.page.evaluate(body)
        last, before[0] = before[0], now
        return bool(now == last and len(now) > 2_000)

    wait(tab, same, "the picture does not come to rest")


def wait(tab: WatchedPage, condition: Callable[[], Any], why: str) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        tab.page.wait_for_timeout(150)
    raise AssertionError(f"{why}: {tab.page.url}")


def pixels(tab: WatchedPage, x: float, y: float, side: int = 8) -> set[tuple[int, int, int]]:
    """Return the colours around a point of the cells' field, x and y from 0 to 1."""
    body = """([x, y, side]) => {
        const canvas = document.querySelector(".heat-field canvas");
        const left = canvas.getBoundingClientRect().width < 620 ? 76 : Math.round(11 * 11);
        const px = left + x * (canvas.width - left - 14), py = y * (canvas.height - 22);
        const copy = Object.assign(document.createElement("canvas"), { width: side, height: side }).getContext("2d");
        copy.drawImage(canvas, Math.round(px - side / 2), Math.round(py - side / 2), side, side, 0, 0, side, side);
        return [...copy.getImageData(0, 0, side, side).data];
    }"""
    data = tab.page.evaluate(body, [x, y, side])
    return {tuple(data[at : at + 3]) for at in range(0, len(data), 4)}


def colour_of(value: float, low: float = 0.0, high: float = 1.0) -> tuple[int, int, int]:
    place = round(min(1.0, max(0.0, (value - low) / (high - low))) * 255) / 255 * 9
    below = min(int(place), 8)
    one, other = CIVIDIS[below], CIVIDIS[below + 1]
    red, green, blue = (round(a + (b - a) * (place - below)) for a, b in zip(one, other, strict=True))
    return red, green, blue


def near(colours: set[tuple[int, int, int]], wanted: tuple[int, int, int]) -> bool:
    return all(max(abs(a - b) for a, b in zip(colour, wanted, strict=True)) <= 3 for colour in colours)


def cell_view(rank: int, second: int) -> dict[str, str]:
    """Return the part of an address that shows four rows and eight seconds, of which the first cells are this one's."""
    start = 1_790_000_000 + second
    return {"rows": f"{rank}-{rank + 4}", "start": str(start), "stop": str(start + 8)}


@pytest.mark.usefixtures("real")
def test_cells_of_ten_thousand_gpus_have_the_colours_of_their_values(world: SimpleNamespace, tab: WatchedPage) -> None:
    run = cordee.open_run(world.big.root)
    for rank, second in ((0, 30), (BIG.story.slow_node * 4, 40), (8_000, 200)):
        open_map(tab, world.big, scale="unit", metric="gpu_sm_ratio", **cell_view(rank, second))
        grid = run.grid("gpu", ["gpu_sm_ratio"], 1_790_000_000.0 + second, 1_790_000_000.0 + second + 8)
        for row, column in ((0, 0), (1, 3), (3, 7)):
            gpu = gpu_uuid((rank + row) // 4, (rank + row) % 4)
            value = float(grid.values[0, column, grid.devices.index(gpu)])
            place, wanted = ((column + 0.5) / 8, (row + 0.5) / 4), colour_of(value)
            coloured(tab, place, wanted)


def test_what_is_missing_is_hatched_and_infinity_striped_never_a_value(
    world: SimpleNamespace, tab: WatchedPage
) -> None:
    gone = BIG.story.unmeasured // 4 * 4
    open_map(tab, world.big, metric="gpu_sm_ratio", **cell_view(gone, 30))
    place = (0.5, (BIG.story.unmeasured - gone + 0.5) / 4)
    wait(tab, lambda: pixels(tab, *place, 16) == MISSING, "what is missing is not hatched")
    device, second = BIG.story.nonsense
    open_map(tab, world.big, metric="gpu_power_watts", **cell_view(device // 4 * 4, second))
    wait(tab, lambda: pixels(tab, 0.5 / 8, (device % 4 + 0.5) / 4, 16) == ABOVE, "infinity is not striped")


def test_it_sorts_and_groups_and_the_address_holds_the_view(world: SimpleNamespace, tab: WatchedPage) -> None:
    open_map(tab, world.big, metric="gpu_sm_ratio")
    page = tab.page
    page.get_by_label("Sort by").select_option("deviation")
    page.get_by_label("Group by").select_option("pp")
    wait(tab, lambda: "sort=deviation" in page.url and "by=pp" in page.url, "the address does not say how it is sorted")
    painted(tab)
    field = page.locator(".heat-field canvas")
    box = field.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    page.mouse.wheel(0, -600)
    query = wait(
        tab, lambda: "rows" in address(page.url) and "start" in address(page.url) and address(page.url), "zoomed"
    )
    assert float(query["stop"]) - float(query["start"]) < SECONDS / 2
    slow = f"nid{BIG.story.slow_node:06d}"
    # A link opens the same view: the top row of the slow node's stage is one of its GPUs.
    stage = BIG.story.layout.place(BIG.story.slow_node * 4)["pp"]
    top = stage * GPUS // 8
    page.goto("about:blank")
    open_map(tab, world.big, metric="gpu_sm_ratio", sort="deviation", by="pp", rows=f"{top}-{top + 4}")
    field.focus()
    page.keyboard.press("ArrowDown")
    wait(tab, lambda: slow in voice(tab), "the slow node does not lead its stage")
    assert f"pp {stage}" in voice(tab)
    assert page.get_by_label("Sort by").input_value() == "deviation"
    rows = page.locator("tr[data-row]").all_inner_texts()
    assert "never measured" in rows[0]
    assert sum(slow in row for row in rows[:6]) == 4


def test_it_is_used_by_keyboard_alone(world: SimpleNamespace, tab: WatchedPage) -> None:
    open_map(tab, world.big, metric="gpu_sm_ratio")
    page = tab.page
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.tagName") == "CANVAS":
            break
    page.keyboard.press("ArrowRight")
    first = wait(tab, lambda: voice(tab), "the cell is not read out")
    assert re.search(r"nid\d+ GPU \d · rank \d+, .*%", first)
    page.keyboard.press("ArrowDown")
    wait(tab, lambda: voice(tab) != first, "the next cell is not read out")
    for _ in range(4):
        page.keyboard.press("+")
    wait(tab, lambda: "rows" in address(page.url), "plus does not zoom")
    page.keyboard.press("0")
    wait(tab, lambda: "rows" not in address(page.url) and "start" not in address(page.url), "0 does not show all")
    page.keyboard.press("Space")
    page.wait_for_selector("text=Picked rows")
    page.locator(".panel .uplot").first.wait_for()
    page.locator(".heat-field canvas").focus()
    page.keyboard.press("Enter")
    wait(tab, lambda: re.search(r"/rank/\d+\?.*start=", page.url), "Enter does not open the rank")


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_new_columns_appear_and_nothing_is_fetched_again(
    world: SimpleNamespace, tab: WatchedPage, tmp_path: Path
) -> None:
    asked: list[str] = []
    tab.page.context.on("request", lambda request: asked.append(request.url))
    for folder in running(world.runs, MadeRun(16, 60, name="live", metrics={"gpu": ("gpu_sm_ratio",)})):
        open_map(tab, folder)
        columns = shown_columns(tab)
        grown(tab, columns + 3)
        painted_at_end = pixels(tab, 0.999, 0.5, 3)
        assert (255, 255, 255) not in painted_at_end  # it goes on to the newest column
        # Zoomed in, what is looked at stays.
        tab.page.locator(".heat-field canvas").focus()
        tab.page.keyboard.press("+")
        start = wait(tab, lambda: address(tab.page.url).get("start"), "plus does not zoom")
        columns = shown_columns(tab)
        grown(tab, columns + 2)
        assert address(tab.page.url)["start"] == start
    whole = [url for url in asked if "/heat?" in url and "start=" not in url]
    assert len(whole) == 1


def test_names_with_markup_are_text(world: SimpleNamespace, tab: WatchedPage) -> None:
    open_map(tab, world.odd, by="node", sort="deviation")
    tab.page.locator(".heat-field canvas").focus()
    tab.page.keyboard.press("ArrowDown")
    wait(tab, lambda: MARKUP in voice(tab), "the name is not read as it is")
    assert MARKUP in tab.page.locator("tr[data-row]").first.inner_text()
    assert tab.page.locator("main img").count() == 0
    tab.page.goto(f"{tab.url}/#/run/{world.odd.id}/bands")
    tab.page.wait_for_selector(f"text={MARKUP}")
    assert tab.page.locator("main img").count() == 0


def test_a_phone_shows_it_without_scrolling_sideways_and_a_tap_says_what_is_there(
    world: SimpleNamespace, phone: WatchedPage
) -> None:
    open_map(phone, world.odd)
    assert phone.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    box = phone.page.locator(".heat-field canvas").bounding_box()
    assert box is not None
    phone.page.touchscreen.tap(box["x"] + 200, box["y"] + 60)
    link = phone.page.locator(".heat-tip a")
    link.wait_for()
    assert re.search(r"/rank/\d+", link.get_attribute("href") or "")
    phone.page.goto(f"{phone.url}/#/run/{world.odd.id}/bands")
    phone.page.wait_for_selector(".band .uplot")
    assert phone.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_a_server_that_does_not_answer_is_asked_again(world: SimpleNamespace, tab: WatchedPage) -> None:
    open_map(tab, world.odd)
    tab.page.context.set_offline(True)
    tab.page.get_by_label("Colours").get_by_text("around median").click()
    tab.page.evaluate(
        "() => (location.hash = location.hash.replace('heat?', 'heat?again=1&') + '&metric=gpu_sm_ratio')"
    )
    tab.page.get_by_label("Sort by").select_option("mean")
    painted(tab)  # what is there is sorted and coloured without the server
    tab.page.context.set_offline(False)
    tab.faults[:] = [fault for fault in tab.faults if "ERR_INTERNET_DISCONNECTED" not in fault]
    open_map(tab, world.odd)


def test_the_bands_name_the_devices_that_stand_apart(world: SimpleNamespace, tab: WatchedPage) -> None:
    tab.page.goto(f"{tab.url}/#/run/{world.big.id}/bands?metrics=gpu:gpu_sm_ratio")
    slow = f"nid{BIG.story.slow_node:06d}"
    tab.page.wait_for_selector(f".outliers >> text={slow}")
    assert "10 751 of 10 752 devices measured" in tab.page.locator(".outliers").inner_text()
    tab.page.locator(f".outliers a:has-text('{slow}')").first.click()
    wait(tab, lambda: re.search(r"/rank/\d+\?start=", tab.page.url), "the device does not lead to its rank")


def coloured(tab: WatchedPage, place: tuple[float, float], wanted: tuple[int, int, int]) -> None:
    """Wait until a place has a colour."""
    wait(tab, lambda: near(pixels(tab, *place), wanted), f"{place} is not {wanted}")


def grown(tab: WatchedPage, columns: int) -> None:
    """Wait until there are so many columns."""
    wait(tab, lambda: shown_columns(tab) >= columns, f"{columns} columns do not appear")


def voice(tab: WatchedPage) -> str:
    return " ".join(tab.page.locator("main p[aria-live=polite]").all_text_contents())


def address(url: str) -> dict[str, str]:
    query = urlsplit(urlsplit(url).fragment).query
    return {name: values[0] for name, values in parse_qs(query).items()}


def shown_columns(tab: WatchedPage) -> int:
    found = re.search(r"× ([\d  ]+) columns", tab.page.locator(".heat-foot").inner_text())
    return int(re.sub(r"\D", "", found.group(1))) if found else 0


def running(runs: Path, made: MadeRun) -> Iterator[RunFolder]:
    """Yield the folder of a made run that goes on meanwhile."""
    over = threading.Event()
    written = follow_run(runs, made)
    folder = next(written)

    def go_on() -> None:
        while not over.is_set():
            next(written)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield folder
    finally:
        over.set()
        thread.join()


@pytest.mark.usefixtures("real")
def test_the_made_run_has_what_these_tests_look_for(world: SimpleNamespace) -> None:
    grid = cordee.open_run(world.big.root).grid("gpu", ["gpu_sm_ratio"])
    assert grid.values.shape == (1, SECONDS, GPUS)
    assert np.isnan(
        grid.values[0, :, grid.devices.index(gpu_uuid(BIG.story.unmeasured // 4, BIG.story.unmeasured % 4))]
    ).all()
