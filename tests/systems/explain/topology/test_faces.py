"""Where a run sits on the network, in its report and by the HTTP interface; in the browser: tests/faces/web/test_pages.py."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from cordee.faces.report import render
from support.made.runs import MadeRun, write_run
from support.servers.serving import ServedRuns


@pytest.fixture
def made(tmp_path, monkeypatch) -> Path:
    """A run of 8 nodes, and a profile that names no switches."""
    (tmp_path / "clusters").mkdir()
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path / "clusters"))
    return write_run(tmp_path / "runs", MadeRun(32, 20, node_name="n<{}>")).root


@pytest.fixture
def switches(tmp_path, made) -> Path:
    file = tmp_path / "clusters" / "local.toml"
    lines = [
        f'{name} = "{",".join(f"n<{at}>" for at in nodes)}"' for name, nodes in (("s0", range(6)), ("s1", range(6, 8)))
    ]
    file.write_text(
        "\n".join(['name = "local"', "[switches]", *lines, 'top = "n<0>,n<1>,n<2>,n<3>,n<4>,n<5>,n<6>,n<7>"'])
    )
    return file


def report_of(folder: Path) -> tuple[dict, str, str]:
    render(folder)
    report = folder / "report"
    return (
        json.loads((report / "report.json").read_text()),
        (report / "report.txt").read_text(),
        (report / "index.html").read_text(),
    )


def test_the_report_says_where_the_run_sat_and_draws_it(made, switches):
    document, text, page = report_of(made)
    assert (document["topology"]["switches_spanned"], document["topology"]["nodes"]) == (2, 8)
    part = text[text.index("Where it sat on the network") :]
    assert "spans 2 switches of 2" in part
    assert max(map(len, part.split("\n\n")[0].splitlines())) <= 80
    assert '<svg class="time boxes"' in page
    assert "n&lt;0&gt;: ranks 0-3" in page
    assert "n<0>" not in page


def test_a_report_without_a_network_says_nothing_of_it(made):
    document, text, page = report_of(made)
    assert document["topology"] is None
    assert "Where it sat" not in text + page


def test_the_interface_gives_figures_and_the_picture(made, switches):
    with ServedRuns(made.parent) as server, httpx.Client(base_url=server.url, timeout=60.0) as client:
        address = f"/api/runs/{made.name}/topology"
        found = client.get(address, params={"filter": "pp=0-1", "colour": "dp"}).json()
        refused = client.get(address, params={"filter": "zp=1"})
    assert (found["nodes"], found["switches_spanned"], found["missing"]) == (2, 1, [])
    assert found["picture"].startswith("<svg ")
    assert refused.status_code == 400
    assert refused.json()["error"]["given"] == "zp=1"
