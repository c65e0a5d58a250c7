"""Commands of the user's, variables, and reachability, with real processes and real sockets."""

from __future__ import annotations

import http.server
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.vetting.node.checks import run_checks
from cordee.systems.vetting.node.checks.host import internet
from cordee.systems.vetting.node.checks.host.internet import proxy_for
from cordee.wire.ports import bind


def one(check: str, parameters: dict[str, Any], **request: Any) -> dict[str, Any]:
    (result,) = run_checks({"checks": [{"check": check, "parameters": parameters}], "deadline_s": 20, **request})
    assert json.loads(json.dumps(result)) == result
    return result


def saying(**words: Any) -> list[str]:
    return [sys.executable, "-c", f"print('measuring ...'); print({json.dumps(words)!r})"]


@pytest.mark.parametrize(
    ("code", "status", "cause"),
    [
        (0, "pass", None),
        (1, "fail", None),
        (2, "warn", None),
        (3, "unknown", "error"),
        (4, "fail", None),
        (126, "unknown", "absent"),
        (127, "unknown", "absent"),
        (255, "fail", None),
    ],
)
def test_an_exit_code_is_a_status(code: int, status: str, cause: str | None) -> None:
    result = one("command", {"command": ["sh", "-c", f"echo out; echo a >&2; echo 'disk bad' >&2; exit {code}"]})
    assert (result["status"], result["cause"]) == (status, cause)
    assert result["evidence"] == f"sh ended with {code}: a | disk bad"
    assert result["facts"]["exit_code"] == code


def test_the_meaning_of_exit_codes_can_be_given() -> None:
    codes = {"4": "warn", "0": "skip"}
    assert one("command", {"command": "sh -c 'exit 4'", "codes": codes})["status"] == "warn"
    assert one("command", {"command": "true", "codes": codes})["status"] == "skip"
    wrong = one("command", {"command": "true", "codes": {"0": "good"}})
    assert (wrong["status"], wrong["cause"]) == ("unknown", "error")
    assert "allowed: pass, warn, fail, unknown, skip" in wrong["evidence"]


def test_text_is_split_like_a_shell_but_no_shell_runs() -> None:
    result = one("command", {"command": "echo 'two words' $HOME ; exit 1"})
    assert (result["status"], result["evidence"]) == ("pass", "echo ended with 0: two words $HOME ; exit 1")


def test_a_json_line_is_the_result() -> None:
    words = {"status": "warn", "value": 4.5, "unit": "GB/s", "evidence": "slow disk", "facts": {"disk": "sda"}}
    result = one("command", {"command": saying(**words)})
    assert {key: result[key] for key in ("status", "value", "unit", "evidence")} == {
        key: words[key] for key in ("status", "value", "unit", "evidence")
    }
    assert result["facts"] == {"disk": "sda", "exit_code": 0}
    closed = one("command", {"command": saying(status="unknown", cause="closed", evidence="no permission")})
    assert (closed["status"], closed["cause"]) == ("unknown", "closed")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"status": "good"}, "it says the status 'good'"),
        ({"status": "pass", "value": "4"}, "it says the value '4', which is no number"),
        ({"status": "pass", "value": True}, "it says the value True, which is no number"),
    ],
)
def test_a_json_line_that_makes_no_sense_is_unknown(words: dict[str, Any], text: str) -> None:
    result = one("command", {"command": saying(**words)})
    assert (result["status"], result["cause"]) == ("unknown", "error")
    assert text in result["evidence"]


def test_a_pass_that_ends_badly_is_unknown() -> None:
    program = 'import sys; print(\'{"status": "pass"}\'); sys.exit(1)'
    result = one("command", {"command": [sys.executable, "-c", program]})
    assert (result["status"], result["evidence"]) == ("unknown", "it says pass but ends with 1")


def test_a_value_is_held_against_limits_and_peers() -> None:
    command = saying(status="pass", value=5, unit="GB/s")
    low = one("command", {"command": command, "min": 6})
    assert (low["status"], low["threshold"]) == ("fail", 6)
    assert low["evidence"].endswith("5 is below 6")
    assert low["reference"]["kind"] == "absolute"
    assert one("command", {"command": command, "max": 4, "unit": "GiB/s"})["evidence"].endswith("5 is above 4")
    good = one("command", {"command": command, "min": 5, "max": 5, "min_ratio": 0.9, "margin": 2, "same": ["value"]})
    assert good["status"] == "pass"
    assert [entry["kind"] for entry in good["compare"]] == ["low", "high", "same"]
    silent = one("command", {"command": "true", "min": 5})
    assert (silent["status"], silent["cause"]) == ("unknown", "error")


def test_a_command_runs_in_the_environment_and_folder_of_the_ranks(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text('#!/bin/sh\necho "$A-$B-$C"; pwd >&2\n')
    (tmp_path / "tool").chmod(0o755)
    env = {"PATH": os.environ["PATH"], "A": "1", "C": "3"}
    result = one("command", {"command": "./tool", "env": {"B": "2", "C": None}}, env=env, workdir=str(tmp_path))
    assert result["evidence"] == f"./tool ended with 0: {tmp_path}"
    shown = one("command", {"command": "sh -c 'echo $A-$B-$C'", "env": {"B": "2", "C": None}}, env=env)
    assert shown["evidence"] == "sh ended with 0: 1-2-"


def test_a_command_that_is_not_there_or_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    gone = one("command", {"command": "no-such-tool --x"})
    assert (gone["status"], gone["cause"], gone["evidence"]) == ("unknown", "absent", "no-such-tool is not on PATH")
    for wrong in ("", "'unclosed", [], 5):
        assert one("command", {"command": wrong})["cause"] == "error"
    (tmp_path / "empty").touch()
    (tmp_path / "empty").chmod(0o755)
    broken = one("command", {"command": str(tmp_path / "empty")})
    assert broken["evidence"].endswith("cannot be started: Exec format error")


def test_a_command_that_crashes_fails_with_the_signal() -> None:
    result = one("command", {"command": ["sh", "-c", "kill -SEGV $$"]})
    assert (result["status"], result["evidence"]) == ("fail", "sh was ended by SIGSEGV")


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"echo started >&2; sleep 600 & echo $$ $! > {pids}; wait"
    result = one("command", {"command": ["sh", "-c", script], "timeout": 0.5})
    assert (result["status"], result["cause"]) == ("unknown", "timeout")
    assert result["evidence"].startswith("sh did not end within 0.5 s and was killed: started; process ")
    assert any("sleep 600" in line for line in result["facts"]["stack"])
    _all_gone(pids)


def test_what_a_command_leaves_running_does_not_hold_up_its_result(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    result = one("command", {"command": ["sh", "-c", f"sleep 600 & echo $! > {pids}; echo done"]})
    assert (result["status"], result["evidence"]) == ("pass", "sh ended with 0: done")
    _all_gone(pids)


def _all_gone(pids: Path) -> None:
    until = time.monotonic() + 60
    for pid in pids.read_text().split():
        while Path(f"/proc/{pid}").exists() and _state(pid) not in "ZX":
            assert time.monotonic() < until
            time.sleep(0.01)


def _state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def test_a_flood_of_output_is_cut() -> None:
    result = one("command", {"command": [sys.executable, "-c", "print('x' * 10_000_000)"]})
    assert result["status"] == "pass"
    assert len(result["evidence"]) < 3000


def test_expected_variables_are_compared_as_text_and_null_means_any() -> None:
    env = {"A": "1", "B": "x", "C": ""}
    good = one("host.environment", {"expected": {"A": "1", "B": None, "C": None}}, env=env)
    assert (good["status"], good["value"], good["evidence"]) == ("pass", 0, "3 variables as expected")
    bad = one("host.environment", {"expected": {"A": "2", "B": None, "D": None, "E": "5"}}, env=env)
    assert (bad["status"], bad["value"]) == ("fail", 3)
    assert bad["evidence"] == "A is '1', not '2'; D is not set; E is not set"


def test_variables_that_must_be_the_same_are_handed_to_the_comparison() -> None:
    result = one("host.environment", {"same": ["A", "D"]}, env={"A": "1"})
    assert result["facts"] == {"env A": "1", "env D": "(not set)"}
    assert [(entry["kind"], entry["of"]) for entry in result["compare"]] == [("same", "env A"), ("same", "env D")]


def test_a_listening_port_is_reached_and_a_closed_one_refused() -> None:
    with bind("127.0.0.1", None) as server:
        server.listen(1)
        port = server.getsockname()[1]
        result = one("host.internet", {"host": "127.0.0.1", "port": port})
        assert result["status"] == "pass"
        assert result["evidence"].startswith(f"127.0.0.1 port {port}: reached in ")
    refused = one("host.internet", {"host": "127.0.0.1", "port": port})
    assert (refused["status"], refused["evidence"]) == ("fail", f"127.0.0.1 port {port}: the connection was refused")


def test_a_server_that_does_not_answer_is_a_time_out() -> None:
    with bind("127.0.0.1", None) as server:
        server.listen(0)
        address = server.getsockname()
        waiting = []
        # The queue of connections that nobody accepts is filled: the next one gets no answer.
        for _ in range(8):
            attempt = socket.socket()
            attempt.setblocking(False)
            attempt.connect_ex(address)
            waiting.append(attempt)
        result = one("host.internet", {"host": address[0], "port": address[1], "timeout": 0.3})
        for attempt in waiting:
            attempt.close()
    assert (result["status"], result["threshold"]) == ("fail", 0.3)
    assert result["evidence"].endswith("no answer within 0.3 s")


def test_a_name_that_cannot_be_resolved_is_told_from_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    result = one("host.internet", {"host": "no-such-host.invalid"})
    assert result["status"] == "fail"
    assert "the name no-such-host.invalid cannot be resolved (DNS)" in result["evidence"]
    never = threading.Event()
    monkeypatch.setattr(internet.socket, "getaddrinfo", lambda *words, **more: never.wait())
    silent = one("host.internet", {"host": "example.org", "timeout": 0.1})
    assert silent["evidence"].endswith("the name example.org cannot be resolved (DNS): no answer within 0.1 s")


class _Answers(http.server.BaseHTTPRequestHandler):
    code = 200
    asked: list[str] = []

    def do_HEAD(self) -> None:
        type(self).asked.append(self.path)
        self.send_response(type(self).code)
        self.end_headers()

    def log_message(self, *words: Any) -> None:
        return


@pytest.fixture
def server() -> Iterator[tuple[type[_Answers], int]]:
    handler = type("Handler", (_Answers,), {"asked": []})
    probe = bind("127.0.0.1", None)
    port = probe.getsockname()[1]
    probe.close()
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield handler, port
        running.shutdown()
        thread.join()


def test_an_address_is_asked_for_and_any_answer_of_its_server_counts(server: tuple[type[_Answers], int]) -> None:
    handler, port = server
    url = f"http://127.0.0.1:{port}/page"
    assert one("host.internet", {"url": url}, env={})["status"] == "pass"
    handler.code = 404
    assert one("host.internet", {"url": url}, env={})["status"] == "pass"
    assert handler.asked == ["/page", "/page"]


def test_an_address_is_asked_for_through_the_proxy_of_the_ranks(server: tuple[type[_Answers], int]) -> None:
    handler, port = server
    env = {"http_proxy": f"127.0.0.1:{port}"}
    result = one("host.internet", {"url": "http://models.invalid/x"}, env=env)
    assert result["status"] == "pass"
    assert f"http://models.invalid/x through http://127.0.0.1:{port}" in result["evidence"]
    assert handler.asked == ["http://models.invalid/x"]
    handler.code = 503
    refused = one("host.internet", {"url": "http://models.invalid/x"}, env=env)
    assert refused["status"] == "fail"
    assert "the proxy answers 503" in refused["evidence"]
    direct = one("host.internet", {"url": "http://models.invalid/x"}, env={**env, "no_proxy": ".invalid"})
    assert "the name models.invalid cannot be resolved" in direct["evidence"]


@pytest.mark.parametrize(
    ("url", "env", "expected"),
    [
        ("https://a.org/x", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://a.org/x", {"HTTPS_PROXY": "http://p:1", "https_proxy": "q:2"}, "http://q:2"),
        ("http://a.org/x", {"HTTPS_PROXY": "http://p:1"}, None),
        ("http://a.org/x", {"ALL_PROXY": "p:1"}, "http://p:1"),
        ("https://b.a.org/x", {"https_proxy": "p:1", "NO_PROXY": "x.org, .a.org"}, None),
        ("https://aa.org/x", {"https_proxy": "p:1", "no_proxy": "a.org"}, "http://p:1"),
        ("https://a.org/x", {"https_proxy": "p:1", "no_proxy": "*"}, None),
    ],
)
def test_the_proxy_is_the_one_the_environment_names(url: str, env: dict[str, str], expected: str | None) -> None:
    assert proxy_for(url, env) == expected


def test_nothing_to_reach_is_unknown() -> None:
    assert one("host.internet", {})["status"] == "unknown"
