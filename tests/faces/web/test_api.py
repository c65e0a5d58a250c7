"""What the HTTP interface tells about a run, asked over a real connection."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

import cordee
from cordee.core import registry
from cordee.faces.web.answers.tables import ARROW_TYPE, FRAME_TYPE, NumberTable, encode
from cordee.runs.folder import RunFolder
from cordee.telemetry.node.blocklog import list_parts
from cordee.telemetry.store import views
from cordee.telemetry.store.reader import Run
from cordee.testing.patience import PatientWait
from support.made.runs import MadeRun, write_run
from support.servers.serving import ServedRuns

from .frames import decode_frame

POWER = {"group": "gpu", "metric": "gpu_power_watts"}


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file below a folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }


def test_runs_are_listed_and_filtered(client: httpx.Client, made_folder: RunFolder) -> None:
    listed = client.get("/api/runs").json()
    assert [run["id"] for run in listed["runs"]] == [made_folder.id]
    assert listed["runs"][0]["state"] == "finished"
    assert listed["runs"][0]["ranks"] == 16
    assert client.get("/api/runs", params={"state": "failed"}).json()["total"] == 0
    assert client.get("/api/runs", params={"name": "MADE"}).json()["total"] == 1
    assert client.get("/api/runs", params={"offset": 1}).json() == {
        **listed,
        "runs": [],
        "now": pytest.approx(listed["now"], abs=60),
    }


def test_a_run_is_told_with_all_that_show_tells_and_more(
    client: httpx.Client, of_run: str, made_folder: RunFolder
) -> None:
    told = client.get(of_run).json()
    assert told["schema"] == "cordee.run/1"
    assert told["run"] == made_folder.id
    assert len(told["nodes"]) == 4
    assert len(told["ranks"]) == 16
    assert told["rank_counts"] == {"running": 16}
    assert {"queue", "vet", "train"} <= {phase["name"] for phase in told["phases"]}
    assert all(isinstance(phase["start"], float) for phase in told["phases"])
    assert told["progress"]["total"] >= told["progress"]["step"] > 0
    assert told["progress"]["steps_per_s"] > 0
    assert "ranks" not in client.get(of_run, params={"brief": True}).json()


def test_each_page_of_a_system_is_a_script_of_the_system_s_own_folder(client: httpx.Client) -> None:
    told = {page["pattern"]: page for page in client.get("/api/pages").json()["pages"]}
    for system, name in (("score", "score"), ("data", "data"), ("checkpoints", "storage"), ("explain", "topology")):
        page = told[f"run/:run/{name}"]
        script = Path(cordee.__file__).parent / "systems" / system / "static" / f"{name}.js"
        assert page["tab"]
        assert client.get(f"/static/pages/{page['file']}").content == script.read_bytes()


def test_the_server_has_no_page_of_a_system_s_own_address() -> None:
    pages = Path(cordee.__file__).parent / "faces" / "web" / "static" / "pages"
    of_systems = {page.file for system in registry.built_in() for page in system.pages}
    assert of_systems
    assert not of_systems & {path.name for path in pages.iterdir()}, "move the script into the system's `static`"


def test_checkpoints_have_the_seconds_and_bytes_that_ranks_told(client: httpx.Client, of_run: str) -> None:
    (first, *_) = client.get(of_run).json()["checkpoints"]
    assert first["seconds"] > 0
    assert first["bytes"] > 0
    assert first["time"] > 0


def test_a_heat_map_is_what_the_reader_gives_in_each_form(
    client: httpx.Client, of_run: str, made_folder: RunFolder
) -> None:
    want = views.heat(Run(made_folder), "gpu", "gpu_power_watts", columns=30)
    frame = decode_frame(client.get(f"{of_run}/heat", params={**POWER, "columns": 30, "format": "frame"}).content)
    np.testing.assert_array_equal(frame.arrays["values"], want.values)
    np.testing.assert_array_equal(frame.arrays["times"], want.times)
    assert frame.facts["devices"] == want.devices
    document = client.get(f"{of_run}/heat", params={**POWER, "columns": 30}).json()
    from_json = np.array([[np.nan if cell is None else cell for cell in row] for row in document["values"]], np.float32)
    np.testing.assert_array_equal(from_json, np.where(np.isfinite(want.values), want.values, np.nan))
    assert document["unit"] == "watts"


def test_arrow_has_a_row_for_each_device_and_the_rest_as_metadata(client: httpx.Client, of_run: str) -> None:
    import pyarrow as pa

    answer = client.get(f"{of_run}/heat", params={**POWER, "columns": 20}, headers={"Accept": ARROW_TYPE})
    assert answer.headers["content-type"] == ARROW_TYPE
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.num_rows == 16
    facts = json.loads(table.schema.metadata[b"facts"])
    assert len(facts["times"]) == len(table["values"][0])
    assert facts["unit"] == "watts"


def test_the_form_follows_the_header_accept_unless_it_is_named(client: httpx.Client, of_run: str) -> None:
    headers = {"Accept": FRAME_TYPE}
    assert client.get(f"{of_run}/bands", params=POWER, headers=headers).headers["content-type"] == FRAME_TYPE
    named = client.get(f"{of_run}/bands", params={**POWER, "format": "json"}, headers=headers)
    assert named.headers["content-type"] == "application/json"


def test_bands_and_lines_are_of_the_same_devices(client: httpx.Client, of_run: str) -> None:
    bands = client.get(f"{of_run}/bands", params={**POWER, "points": 10}).json()
    assert len(bands["times"]) == len(bands["p50"]) <= 10
    assert all(low <= high for low, high in zip(bands["p5"], bands["p50"], strict=True) if low is not None)
    names = [device["name"] for device in client.get(f"{of_run}/devices", params={"group": "gpu"}).json()["devices"]]
    lines = client.get(f"{of_run}/lines", params={**POWER, "devices": ",".join(names[:2]), "points": 10}).json()
    assert lines["devices"] == names[:2]
    assert np.array(lines["mean"], float).shape == (2, len(lines["times"]))


def test_groups_tell_unit_source_and_meaning_of_every_metric(client: httpx.Client, of_run: str) -> None:
    groups = {group["name"]: group for group in client.get(f"{of_run}/groups").json()["groups"]}
    assert groups["gpu"]["devices"] == 16
    assert groups["gpu"]["last"] - groups["gpu"]["first"] >= 50
    for metric in groups["gpu"]["metrics"]:
        assert metric["unit"]
        assert metric["source"] == "synthetic"
        assert metric["meaning"]


def test_devices_come_in_the_order_of_the_rows_of_a_heat_map(client: httpx.Client, of_run: str) -> None:
    for group, metric in (("gpu", "gpu_power_watts"), ("rank", "cpu_cores_ratio"), ("node", "cpu_busy_ratio")):
        devices = client.get(f"{of_run}/devices", params={"group": group}).json()["devices"]
        rows = client.get(f"{of_run}/heat", params={"group": group, "metric": metric}).json()["devices"]
        assert [device["name"] for device in devices] == rows
        assert all(device["node"] for device in devices)


def test_logged_metrics_are_listed_and_thinned_and_own_names_are_left_out(client: httpx.Client, of_run: str) -> None:
    names = {metric["name"]: metric for metric in client.get(f"{of_run}/logged").json()["metrics"]}
    assert "loss" in names
    assert not [name for name in names if name.startswith("cordee/")]
    curve = client.get(f"{of_run}/logged/loss", params={"points": 5}).json()
    assert 0 < len(curve["x"]) <= 5
    assert all(low <= mean <= high for low, mean, high in zip(curve["low"], curve["mean"], curve["high"], strict=True))
    by_time = client.get(f"{of_run}/logged/loss", params={"by": "time", "rank": 0}).json()
    assert by_time["x"] == sorted(by_time["x"])
    assert set(by_time["ranks"]) == {1.0}


def test_nodes_ranks_logs_and_findings_lead_to_each_other(client: httpx.Client, of_run: str) -> None:
    rank = client.get(f"{of_run}/ranks/5").json()
    node = client.get(f"{of_run}/nodes/{rank['node']}").json()
    assert 5 in node["ranks"]
    assert len(node["gpus"]) == 4
    lines = client.get(f"{of_run}/logs", params={"rank": 0, "lines": 3}).json()["lines"]
    assert lines
    assert {line["rank"] for line in lines} == {0}
    for finding in client.get(f"{of_run}/findings").json()["findings"]:
        if finding["evidence"]:
            assert finding["evidence"]["page"] in ("heat", "node", "rank", "logs")


def test_what_is_not_there_is_named_with_what_there_is(client: httpx.Client, of_run: str) -> None:
    for path, status in (
        ("/api/runs/nothing", 404),
        (f"{of_run}/nodes/nothing", 404),
        (f"{of_run}/ranks/99", 404),
        (f"{of_run}/ranks/-1", 400),
        (f"{of_run}/logged/nothing", 400),
        (f"{of_run}/heat?group=gpu&metric=nothing", 400),
        (f"{of_run}/heat?group=nothing&metric=x", 400),
        (f"{of_run}/heat?group=gpu&metric=gpu_power_watts&columns=0", 400),
        (f"{of_run}/lines?group=gpu&metric=gpu_power_watts&devices=,", 400),
        ("/api/nothing", 404),
        ("/nothing", 404),
    ):
        answer = client.get(path)
        assert answer.status_code == status, path
        error = answer.json()["error"]
        assert {"kind", "text", "given", "allowed", "next"} <= set(error)
        assert error["text"]


def test_a_browser_that_opens_what_is_not_there_is_shown_a_page(client: httpx.Client) -> None:
    opened = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for path, status in (("/<b>nothing", 404), ("/api/runs/nothing", 404), ("/api/compare?points=x", 400)):
        answer = client.get(path, headers=opened)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), path
        assert answer.headers["vary"] == "Accept"
        assert '<a href="/">' in answer.text
        assert "<b>" not in answer.text
    for asked in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        assert client.get("/nothing", headers=asked).json()["error"]["kind"] == "not_found"
    other = client.get("/", headers={**opened, "Host": "elsewhere.example.org"})
    assert (other.status_code, "<h1>" in other.text) == (403, True)


def test_runs_are_compared_curve_by_curve_with_what_differs(runs: Path) -> None:
    first = write_run(runs, MadeRun(4, 20, name="first"), seal=False)
    second = write_run(runs, MadeRun(4, 20, name="second"), seal=False)
    for folder, rate in ((first, 0.1), (second, 0.2)):
        folder.provenance.write_text(
            json.dumps({"need.nodes": {"value": 1}, "rate": {"value": rate}, "env.KEY": {"value": f"secret-{rate}"}})
        )
    with ServedRuns(runs) as server, httpx.Client(base_url=server.url) as client:
        ids = f"{first.id},{second.id}"
        compared = client.get("/api/compare", params={"runs": ids, "metric": "loss", "points": 4})
        assert [curve["id"] for curve in compared.json()["runs"]] == [first.id, second.id]
        assert compared.json()["settings"] == {"rate": {first.id: 0.1, second.id: 0.2}}
        assert "secret" not in compared.text
        nothing = client.get("/api/compare", params={"runs": ids, "metric": "nothing"}).json()
        assert len(nothing["missing"]) == 2


def test_the_fleet_tells_what_ran_on_each_node_and_what_it_could_not_ask(
    client: httpx.Client, made_folder: RunFolder
) -> None:
    fleet = client.get("/api/fleet").json()
    assert len(fleet["nodes"]) == 4
    assert fleet["nodes"][0]["runs"][0]["id"] == made_folder.id
    assert {"what", "why", "next"} <= set(fleet["missing"][0])


def test_what_has_not_changed_is_not_sent_again(client: httpx.Client, of_run: str) -> None:
    for path in ("", "/groups", "/heat?group=gpu&metric=gpu_power_watts&format=frame", "/logs", "/logged"):
        first = client.get(of_run + path)
        again = client.get(of_run + path, headers={"If-None-Match": first.headers["etag"]})
        assert again.status_code == 304, path
        assert not again.content


def test_answers_are_compressed_where_that_pays(client: httpx.Client, of_run: str) -> None:
    with client.stream("GET", of_run, headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        assert json.loads(gzip.decompress(b"".join(answer.iter_raw())))["schema"] == "cordee.run/1"
    with client.stream("GET", of_run, headers={"Accept-Encoding": "identity"}) as answer:
        assert "content-encoding" not in answer.headers
        assert json.loads(b"".join(answer.iter_raw()))["schema"] == "cordee.run/1"


def test_names_with_markup_come_out_as_data(runs: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    folder = write_run(runs, MadeRun(4, 20, node_name=name + "{}"), seal=False)
    os.rename(folder.root, runs / name)
    with ServedRuns(runs) as server, httpx.Client(base_url=server.url) as client:
        (run,) = client.get("/api/runs").json()["runs"]
        assert run["id"] == name
        answer = client.get(f"/api/runs/{httpx.URL(path=f'/{name}').raw_path[1:].decode()}")
        assert answer.json()["nodes"][0]["node"] == name + "0"
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_looking_at_a_run_writes_nothing_into_its_folders(runs: Path) -> None:
    folder = write_run(runs, MadeRun(4, 20), seal=False)
    before = snapshot(runs)
    with ServedRuns(runs) as server, httpx.Client(base_url=server.url, timeout=300.0) as client:
        of_run = f"/api/runs/{folder.id}"
        for path in client.get("/openapi.json").json()["paths"]:
            if path.endswith("/live"):
                continue
            full = (
                path.replace("{run}", folder.id)
                .replace("{rank}", "0")
                .replace("{node}", "nid000000")
                .replace("{name}", "loss")
            )
            answer = client.get(full, params={**POWER, "devices": "x", "runs": folder.id})
            assert answer.status_code in (200, 400), full
        while client.get(f"{of_run}/score").json()["status"] == "computing":
            time.sleep(0.1)
    assert snapshot(runs) == before


@pytest.mark.gate
def test_a_run_that_is_shown_and_has_no_report_gets_it_beside_the_server(runs: Path, real: None) -> None:
    folder = write_run(runs, MadeRun(4, 20, started_at=time.time() - 3600.0), seal=False)
    other = write_run(runs, MadeRun(4, 20, name="other"), seal=False)
    with ServedRuns(runs, completes=True) as server, httpx.Client(base_url=server.url, timeout=300.0) as client:
        path, patience = f"/api/runs/{folder.id}", PatientWait(60.0)
        assert client.get(path).json()["report"] is None
        while client.get(path).json()["report"] is None and not patience.over():
            time.sleep(0.1)
        assert client.get(path).json()["report"] == str(folder.report / "index.html")
    assert list_parts(folder.telemetry) == []
    assert not (other.report / "index.html").exists()


def test_a_recording_is_shown_wherever_it_lies(tmp_path: Path, runs: Path) -> None:
    from support.recordings.recording import made_node, write_recording

    place = tmp_path / "elsewhere"
    write_recording(place, [made_node(0, 2, {"gpu_graphics_ratio": np.full((60, 2), 0.75)})])
    with ServedRuns(runs, singles=[place]) as server, httpx.Client(base_url=server.url) as client:
        (line,) = client.get("/api/runs").json()["runs"]
        assert line["kind"] == "recording"
        told = client.get(f"/api/runs/{line['id']}").json()
        assert told["kind"] == "recording"
        assert (line["state"], told["state"]) == ("finished", "finished")
        assert [node["ranks"] for node in told["nodes"]] == [[0, 1]]
        assert [rank["status"] for rank in told["ranks"]] == ["exited", "exited"]
        assert client.get(f"/api/runs/{line['id']}/groups").json()["groups"]
        while (scored := client.get(f"/api/runs/{line['id']}/score").json())["status"] == "computing":
            time.sleep(0.1)
        assert scored["status"] == "ready", scored
        (line,) = client.get("/api/runs").json()["runs"]
        assert line["score"] == scored["score"]["score"] > 0


def test_arrow_keeps_times_apart_from_devices_even_where_there_are_as_many() -> None:
    import pyarrow as pa

    table = NumberTable({"times": np.arange(3.0), "values": np.zeros((3, 3), np.float32)}, {"unit": "watts"})
    found = pa.ipc.open_stream(encode(table, "arrow")).read_all()
    assert found.column_names == ["values"]
    assert json.loads(found.schema.metadata[b"facts"]) == {"unit": "watts", "times": [0.0, 1.0, 2.0]}
