"""A vetting is written into the history, and never fails or waits because of it."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cordee.machine.tasks.actions import read_token
from cordee.systems.vetting.fleet.history import history_files, read_vetting
from cordee.systems.vetting.node.judge import record
from cordee.systems.vetting.node.judge.record import write

from .conftest import broken, result, slow, vetting


def only(folder: Path) -> Path:
    (path,) = history_files(folder)
    return path


def test_a_vetting_is_one_file_of_a_header_and_a_line_for_each_node(folder):
    write(slow("n1", "123"), {"folder": str(folder)})
    path = only(folder)
    assert path.parent.name == time.strftime("%Y-%m-%d", time.gmtime())
    header, *nodes = [json.loads(line) for line in path.read_text().splitlines()]
    assert (header["schema"], header["job"], header["user"], header["nodes"]) == ("cordee.history/1", "123", "ada", 3)
    assert [node["node"] for node in nodes] == ["n1", "p1", "p2"]
    assert nodes[0]["results"][0]["rule"] == {"id": "pair.slow", "kind": "soft", "scope": "node", "action": "exclude"}
    assert [pair["node"] for pair in nodes[0]["pairs"]] == ["p1", "p2"]
    assert "evidence" not in nodes[1]["results"][0]


def test_nothing_in_a_document_leads_out_of_the_folder(folder):
    write(vetting("../../../etc/cron.d/x", id="../../oops"), {"folder": str(folder)})
    path = only(folder)
    assert path.parent.parent == folder
    assert sorted(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize(("kept", "user"), [("name", "ada"), ("none", None)])
def test_a_user_is_kept_as_the_site_wants(folder, kept, user):
    write(vetting("1"), {"folder": str(folder), "user": kept})
    assert read_vetting(only(folder)).header["user"] == user


def test_a_user_can_be_kept_as_the_same_hash_each_time(folder):
    write(vetting("1"), {"folder": str(folder), "user": "hash"})
    write(vetting("2"), {"folder": str(folder), "user": "hash"})
    users = {read_vetting(path).header["user"] for path in history_files(folder)}
    assert len(users) == 1
    assert re.fullmatch(r"user-[0-9a-f]{12}", users.pop())


def test_folders_of_days_are_as_open_as_the_history(folder):
    folder.mkdir()
    folder.chmod(0o1777)
    write(vetting("1"), {"folder": str(folder)})
    assert only(folder).parent.stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize("target", [{}, {"folder": "/proc/none"}, {"url": "ftp://x"}, {"url": "http://example.org",
                                     "token_file": "/none"}])  # fmt: skip
def test_a_history_that_cannot_be_written_is_only_logged(target, folder, caplog):
    with caplog.at_level(logging.WARNING):
        write(vetting("1"), target)
    assert caplog.records


@pytest.mark.parametrize("document", [{}, {"nodes": [{}]}, {"nodes": None}, {"at": "yesterday", "nodes": []}])
def test_a_document_that_is_none_is_only_logged(document, folder, caplog):
    with caplog.at_level(logging.WARNING):
        write(document, {"folder": str(folder)})


class Collector:
    """A server that answers with `code`; keeps what it was sent."""

    def __init__(self) -> None:
        self.code, self.bodies, self.tokens = 201, [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.bodies.append(body)
                outer.tokens.append(self.headers["Authorization"])
                self.send_response(outer.code)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


@pytest.fixture
def target(collector: Collector, folder: Path, tmp_path: Path) -> dict[str, str]:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef01234567\n")
    token.chmod(0o600)
    return {"url": collector.url, "token_file": str(token), "spool": str(tmp_path / "spool")}


def spooled(target: dict[str, str]) -> list[Path]:
    return sorted(Path(target["spool"]).glob("*/*.jsonl"))


def test_a_vetting_is_posted_with_the_token(collector, target):
    write(broken("n1", "7"), target)
    assert collector.tokens == ["Bearer 0123456789abcdef01234567"]
    assert json.loads(collector.bodies[0].splitlines()[0])["job"] == "7"
    assert spooled(target) == []


@pytest.mark.parametrize("code", [500, 503, 401, 403, 302, 404])
def test_what_a_collector_does_not_take_goes_with_the_next_vetting(collector, target, code):
    collector.code = code
    write(vetting("1"), target)
    assert len(spooled(target)) == 1
    collector.code = 201
    write(vetting("2"), target)
    assert spooled(target) == []
    jobs = [json.loads(body.splitlines()[0])["job"] for body in collector.bodies]
    assert sorted(jobs[-2:]) == ["1", "2"]
    assert collector.bodies[0] == collector.bodies[1 + jobs[1:].index("1")]


def test_what_a_collector_refuses_for_good_does_not_block_the_others(collector, target):
    collector.code = 422
    write(vetting("1"), target)
    assert spooled(target) == []
    assert len(list(Path(target["spool"]).glob("*/refused/*.jsonl"))) == 1


def test_a_collector_that_is_down_costs_only_the_spool(target):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        write(vetting("1"), {**target, "url": f"http://127.0.0.1:{closed.getsockname()[1]}"})
    assert len(spooled(target)) == 1


def test_a_collector_that_never_answers_does_not_hold_the_vetting(target, monkeypatch, caplog):
    monkeypatch.setattr(record, "_WAIT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with caplog.at_level(logging.WARNING):
            write(vetting("1"), {**target, "url": f"http://127.0.0.1:{silent.getsockname()[1]}"})
        assert "takes longer" in caplog.text
        assert len(spooled(target)) == 1


def test_a_spool_keeps_only_so_many(target, collector, monkeypatch):
    monkeypatch.setattr("cordee.systems.vetting.node.judge.spool._MOST_KEPT", 3)
    collector.code = 503
    for job in range(6):
        write(vetting(str(job)), target)
    assert len(spooled(target)) == 3


def test_a_token_that_others_can_read_is_not_used(target, collector):
    os.chmod(target["token_file"], 0o644)
    write(vetting("1"), target)
    assert collector.bodies == []
    assert len(spooled(target)) == 1
    with pytest.raises(ValueError, match="can be read by others"):
        read_token(target["token_file"])


def test_a_token_never_travels_in_the_clear(target, caplog):
    with caplog.at_level(logging.WARNING):
        write(vetting("1"), {**target, "url": "http://collector.example"})
    assert "in the clear" in caplog.text


def test_values_of_passes_and_reasons_of_failures_are_kept(folder):
    nodes = {"n1": ("bad", [result("gpu.gemm", value=400.0, unit="TFLOP/s", compare=[{"kind": "low"}],
                                   facts={"model": "H100"}),
                            result("host.memory", "fail", "x" * 5000, required=False)])}  # fmt: skip
    write(vetting("1", nodes=nodes), {"folder": str(folder)})
    gemm, memory = read_vetting(only(folder)).nodes[0]["results"]
    assert (gemm["value"], gemm["unit"], gemm["low"], gemm["model"]) == (400.0, "TFLOP/s", True, "H100")
    assert (memory["required"], len(memory["evidence"]), memory["rule"]["id"]) == (False, 400, "memory.low")
