"""The collector, as a process that is asked over its socket."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cordee.core.errors import CordeeError, DocumentError, UsageError
from cordee.core.web.tokens import find_token, read_tokens
from cordee.systems.vetting.fleet.history import history_files
from cordee.systems.vetting.fleet.index import FleetIndex
from cordee.systems.vetting.fleet.mirror import fetch
from cordee.systems.vetting.fleet.views import list_vettings
from cordee.systems.vetting.node.judge.history import encode, lines_of
from cordee.systems.vetting.node.judge.record import write

from .conftest import broken, slow, vetting

WRITE, READ = "w" * 24, "r" * 24


class Server(NamedTuple):
    """A running collector."""

    process: subprocess.Popen[str]
    port: int
    folder: Path

    def call(
        self, method: str, path: str, body: bytes | None = None, token: str | None = WRITE, **headers: str
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            full = {**({"Authorization": f"Bearer {token}"} if token else {}), **headers}
            connection.request(method, path, body, full)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(content)
        except ValueError:
            return answer.status, content

    def files(self) -> list[Path]:
        return list(history_files(self.folder))


def secret(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture
def server(folder: Path, tmp_path: Path) -> Iterator[Server]:
    tokens = secret(tmp_path / "tokens", f"# who may do what\nvettings write {WRITE}\noperators read {READ}\n")
    argv = [
        sys.executable,
        "-m",
        "cordee.faces.cli",
        "nodes",
        "collect",
        "--folder",
        str(folder),
        "--tokens",
        str(tokens),
    ]
    process = subprocess.Popen(
        [*argv, "--port", "0", "--max-body", "1MB", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said = ""
    while not said.rstrip().endswith("}"):
        line = process.stdout.readline()
        assert line, process.stderr.read()
        said += line
    yield Server(process, int(json.loads(said)["listening"].split()[-1]), folder)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


def body(document: dict[str, Any]) -> bytes:
    return encode(lines_of(document))


def test_a_vetting_comes_in_and_can_be_read_again(server):
    content = body(broken("n1", "7"))
    assert server.call("POST", "/v1/vettings", content)[0] == 201
    (path,) = server.files()
    assert path.read_bytes() == content
    status, listing = server.call("GET", "/v1/vettings", token=READ)
    assert (status, listing) == (200, {"files": [f"{path.parent.name}/{path.name}"], "more": False})
    assert server.call("GET", f"/v1/vettings/{listing['files'][0]}", token=READ)[0] == 200


def test_the_same_vetting_again_changes_nothing(server):
    content = body(broken("n1", "7"))
    assert [server.call("POST", "/v1/vettings", content)[0] for _ in range(3)] == [201, 200, 200]
    other = content.replace(b"fallen", b"FALLEN").replace(b"XID 79", b"XID 80")
    assert server.call("POST", "/v1/vettings", other)[0] == 200
    assert server.files()[0].read_bytes() == content


def test_vettings_at_the_same_time_are_all_stored(server):
    contents = [body(slow(f"n{number}", str(number))) for number in range(40)]
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda part=part: codes.extend(server.call("POST", "/v1/vettings", c)[0] for c in part))
        for part in (contents[:20], contents[20:], contents)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [200] * 40 + [201] * 40
    assert len(server.files()) == 40


@pytest.mark.parametrize(
    ("method", "path", "token", "code"),
    [
        ("POST", "/v1/vettings", None, 401),
        ("POST", "/v1/vettings", "x" * 24, 401),
        ("POST", "/v1/vettings", READ, 403),
        ("GET", "/v1/vettings", WRITE, 403),
        ("GET", "/v1/vettings", None, 401),
        ("GET", "/v1/vettings/2026-11-21/x.jsonl", None, 401),
        ("GET", "/health", None, 200),
        ("DELETE", "/v1/vettings", READ, 405),
        ("GET", "/", READ, 404),
    ],
)
def test_a_token_allows_what_it_is_for_and_nothing_else(server, method, path, token, code):
    assert server.call(method, path, b"{}" if method == "POST" else None, token)[0] == code
    assert server.files() == []


def test_a_foreign_host_name_is_refused(server):
    assert server.call("POST", "/v1/vettings", body(vetting("1")), Host="evil.example")[0] == 400
    assert server.call("GET", "/health", Host="evil.example")[0] == 400


def test_a_body_that_is_too_large_is_refused_early(server):
    assert server.call("POST", "/v1/vettings", b"x" * 1_100_000)[0] == 413
    assert server.files() == []


@pytest.mark.parametrize(
    "name",
    [
        "../tokens", "..%2ftokens", "%2e%2e/tokens", "2026-11-21/../../tokens", "2026-11-21/..%2f..%2ftokens",
        "/etc/passwd", "2026-11-21/.hidden.jsonl", "2026-11-21/x.jsonl%00", "2026-11-21/", "actions.jsonl", "x" * 5000,
    ],
)  # fmt: skip
def test_no_name_leads_out_of_the_history(server, name):
    (server.folder / "2026-11-21").mkdir(parents=True)
    (server.folder / "2026-11-21" / ".hidden.jsonl").write_text("hidden")
    (server.folder / "actions.jsonl").write_text("trail")
    assert server.call("GET", f"/v1/vettings/{name}", token=READ)[0] in (400, 404, 414)


def test_a_link_in_the_history_is_not_followed(server, tmp_path):
    (server.folder / "2026-11-21").mkdir(parents=True)
    (server.folder / "2026-11-21" / "x.jsonl").symlink_to(tmp_path / "tokens")
    assert server.call("GET", "/v1/vettings/2026-11-21/x.jsonl", token=READ)[0] == 404


BAD_HEADERS = [
    {"id": "../../x"}, {"id": ""}, {"id": None}, {"at": "now"}, {"at": None}, {"at": "9999-99-99"}, {"schema": "x"},
    {"job": ["x"]}, {"job": "x" * 500}, {"verdict": "perhaps"}, {"confused": "x"}, {"nodes": "many"}, {"nodes": 99},
]  # fmt: skip


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("change", BAD_HEADERS, ids=lambda change: str(change)[:30])
def test_a_wrong_header_is_refused_in_words(server, change):
    header, *nodes = lines_of(slow("n1", "1"))
    status, answer = server.call("POST", "/v1/vettings", encode([{**header, **change}, *nodes]))
    assert status == 422
    assert answer["text"]
    assert server.files() == []


@pytest.mark.parametrize("change", [{"node": "-x"}, {"node": "../x"}, {"verdict": "x"}, {"results": [1]}, {"pairs": 3},
                                    {"results": [{"check": "a", "status": "fine"}]}, {"node": "n1 "},
                                    {"results": [{"check": "a", "status": "fail", "rule": {"id": 1}}]}])  # fmt: skip
def test_a_wrong_line_of_a_node_is_refused_in_words(server, change):
    header, node, *nodes = lines_of(slow("n1", "1"))
    status, answer = server.call("POST", "/v1/vettings", encode([header, {**node, **change}, *nodes]))
    assert (status, bool(answer["text"])) == (422, True)


def test_random_bodies_and_requests_leave_it_well(server):
    dice = random.Random(4)
    good = body(slow("n1", "1"))
    for _ in range(150):
        damaged = bytearray(good)
        for _ in range(dice.randint(1, 8)):
            place = dice.randrange(len(damaged))
            damaged[place : place + dice.randint(0, 6)] = dice.randbytes(dice.randint(0, 6))
        assert server.call("POST", "/v1/vettings", bytes(damaged))[0] in (200, 201, 422)
    for _ in range(60):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(dice.choice([b"", b"POST /v1/vettings HTTP/1.1\r\n"]) + dice.randbytes(60) + b"\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
    assert server.call("GET", "/health", token=None)[0] == 200
    assert server.process.poll() is None
    outside = set(server.folder.parent.iterdir()) - {server.folder}
    assert {path.name for path in outside} <= {"tokens", "cache", "state"}


def test_nodes_write_to_it_and_operators_read_from_it(server, tmp_path):
    url = f"http://127.0.0.1:{server.port}"
    target = {"url": url, "token_file": str(secret(tmp_path / "w", WRITE)), "spool": str(tmp_path / "spool")}
    for job in "123":
        write(slow("n1", job), target)
    reader = str(secret(tmp_path / "r", READ))
    for count in (3, 4):
        index = FleetIndex(fetch(url, reader))
        index.refresh()
        assert len(list_vettings(index, 0)) == count
        write(slow("n1", "4"), target)
    with pytest.raises(CordeeError, match="403"):
        fetch(url, str(tmp_path / "w"))


def test_a_collector_that_is_gone_is_said_in_words(tmp_path, folder):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(CordeeError, match="not reached"):
        fetch(f"http://127.0.0.1:{port}", None)


def test_tokens_are_told_apart(tmp_path):
    tokens = read_tokens(secret(tmp_path / "t", f"a write {WRITE}\nb read,write {READ} # both\n\n# none\n"))
    assert find_token(tokens, READ).scopes == {"read", "write"}
    assert find_token(tokens, WRITE).name == "a"
    assert find_token(tokens, "") is None
    assert find_token(tokens, "ü" * 24) is None


@pytest.mark.parametrize(
    "text", ["", "a write short\n", f"a all {WRITE}\n", f"a b write {WRITE}\n", f"write {WRITE}\n"]
)
def test_a_wrong_file_of_tokens_is_refused(tmp_path, text):
    with pytest.raises(DocumentError):
        read_tokens(secret(tmp_path / "t", text))


def test_tokens_that_others_can_read_are_refused(tmp_path):
    path = secret(tmp_path / "t", f"a write {WRITE}\n")
    os.chmod(path, 0o640)
    with pytest.raises(UsageError, match="others can read"):
        read_tokens(path)
