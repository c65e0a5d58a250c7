"""Every route against everybody who may not look: the routes are the application's own, so that a new one is tested too."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from starlette.routing import Mount

from cordee.core.web.peers import Peers, socket_owner
from cordee.core.web.tokens import Token
from cordee.faces.web.app import make_app
from cordee.faces.web.gate.access import Access
from cordee.runs.folder import RunFolder
from support.servers.serving import ServedRuns

SECRET = "0123456789abcdef0123456789abcdef"
WRITER = "fedcba9876543210fedcba9876543210"
TOKENS = [Token("reader", frozenset({"read"}), SECRET), Token("writer", frozenset({"write"}), WRITER)]
NOBODY = 4_000_000
QUERY = "?group=gpu&metric=gpu_power_watts&devices=x&runs=x"
OUTSIDE = "what lies outside of the folders"


def paths_of(routes: Iterable[object]) -> Iterator[str]:
    """Yield the path of every route, those of included routers too."""
    for route in routes:
        if isinstance(route, Mount):
            yield f"{route.path}/app.js"
        elif hasattr(route, "path"):
            yield route.path
        else:
            yield from paths_of(route.original_router.routes)  # type: ignore[attr-defined]


ROUTES = sorted(set(paths_of(make_app([]).app.routes)))  # type: ignore[attr-defined]
TRAVERSALS = (
    "..", "../outside", "../../outside", "..%2foutside", "%2e%2e%2foutside", "%2e%2e/outside", "..%252foutside", "..%5coutside",
    "..\\outside", "....//outside", "/etc/passwd", "%2fetc%2fpasswd", "%00", "outside%00", "link", "file:///etc/passwd",
    "%c0%ae%c0%ae%2foutside", "a" * 3000,
)  # fmt: skip


@pytest.fixture(scope="module")
def guarded(made_folder: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedRuns]:
    """A server for which everybody needs a token; beside its folder lies what nobody may see."""
    parent = tmp_path_factory.mktemp("guarded")
    runs = parent / "runs"
    runs.mkdir()
    outside = RunFolder.create(parent, "outside")
    outside.plan.write_text(json.dumps({"name": OUTSIDE, "steps": [{"environment": {"document": {"name": OUTSIDE}}}]}))
    (outside.logs / "n-1.log").write_text(OUTSIDE)
    (runs / "link").symlink_to(outside.root)
    (runs / "again").symlink_to(made_folder.root.parent)
    with ServedRuns(runs, tokens=TOKENS, users=[NOBODY]) as server:
        yield server


@pytest.fixture(scope="module")
def asking(guarded: ServedRuns) -> Iterator[http.client.HTTPConnection]:
    """A connection that sends paths and headers as they are given."""
    connection = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=60)
    yield connection
    connection.close()


def ask(connection: http.client.HTTPConnection, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Return status, body and headers; `host` replaces that header."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest("GET", path, skip_host="host" in named)
    for name, value in named.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}


def filled(route: str, **values: str) -> str:
    """Return a route's path with its parameters filled in."""
    given = {"run": "x", "node": "x", "rank": "0", "number": "1", "name:path": "x", "name": "x", **values}
    for name, value in given.items():
        route = route.replace(f"{{{name}}}", value)
    assert "{" not in route, f"this test has no value for a parameter of {route}"
    return route


def test_the_table_of_routes_is_the_whole_application() -> None:
    assert "/api/runs/{run}/live" in ROUTES
    assert "/openapi.json" in ROUTES
    assert "/" in ROUTES
    assert len(ROUTES) > 15


@pytest.mark.parametrize("route", ROUTES)
def test_no_route_answers_without_a_known_token(asking: http.client.HTTPConnection, route: str) -> None:
    path = filled(route) + QUERY
    for headers, status in (
        ({}, 401),
        ({"authorization": "Bearer " + "0" * 32}, 401),
        ({"authorization": "Basic " + SECRET}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": f"Bearer {WRITER}"}, 403),
        ({"cookie": f"cordee_{asking.port}={SECRET}"}, 401),
        ({"cookie": f"cordee_{asking.port}=reader:99999999999:{'0' * 64}"}, 401),
    ):
        assert ask(asking, path, **headers)[0] == status, headers
    assert ask(asking, path + "&token=" + "0" * 32)[0] == 401


@pytest.mark.parametrize("route", ROUTES)
def test_no_route_answers_to_another_name_or_to_a_page_of_another_site(
    asking: http.client.HTTPConnection, route: str
) -> None:
    path, token = filled(route) + QUERY, f"Bearer {SECRET}"
    here = f"127.0.0.1:{asking.port}"
    for headers in (
        {"host": "evil.example"},
        {"host": f"evil.example:{asking.port}"},
        {"host": "127.0.0.1.evil.example"},
        {"host": ""},
        {"host": here, "origin": "http://evil.example"},
        {"host": here, "origin": "null"},
        {"host": here, "origin": f"http://127.0.0.1:{asking.port + 1}"},
        {"host": here, "sec_fetch_site": "cross-site"},
        {"host": here, "sec_fetch_site": "same-site"},
    ):
        status, body, answered = ask(asking, path, authorization=token, **headers)
        assert status == 403, headers
        assert json.loads(body)["error"]["kind"] == "forbidden"
        assert "access-control-allow-origin" not in answered


@pytest.mark.parametrize("route", [route for route in ROUTES if "{" in route or route.startswith("/static")])
def test_no_spelling_of_a_path_leads_out_of_the_folders(asking: http.client.HTTPConnection, route: str) -> None:
    places = [name for name in ("run", "node", "rank", "name:path") if f"{{{name}}}" in route] or ["app.js"]
    for place in places:
        for spelling in TRAVERSALS:
            if place == "app.js":
                path = route.replace("app.js", spelling)
            else:
                path = filled(route, **{place: spelling, **({"run": "x"} if place != "run" else {})})
            status, body, _ = ask(asking, path + QUERY, authorization=f"Bearer {SECRET}")
            assert status in (400, 404), path
            assert OUTSIDE.encode() not in body
            assert b"root:" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(asking: http.client.HTTPConnection, method: str) -> None:
    for route in ROUTES:
        asking.request(method, filled(route), headers={"Authorization": f"Bearer {SECRET}"})
        answer = asking.getresponse()
        answer.read()
        assert answer.status == 405, route


def test_links_out_of_the_folders_are_not_listed(asking: http.client.HTTPConnection) -> None:
    status, body, _ = ask(asking, "/api/runs", authorization=f"Bearer {SECRET}")
    assert status == 200
    assert json.loads(body)["total"] == 0


def test_every_answer_forbids_what_a_page_must_not_do(asking: http.client.HTTPConnection) -> None:
    for path, status in (("/", 401), ("/api/about", 200), ("/api/nothing", 404), ("/static/app.js", 200)):
        headers = {} if status == 401 else {"authorization": f"Bearer {SECRET}"}
        got, _, answered = ask(asking, path, **headers)
        assert got == status
        policy = answered["content-security-policy"]
        for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "connect-src 'self'"):
            assert part in policy
        assert "unsafe" not in policy
        assert answered["x-content-type-options"] == "nosniff"
        assert answered["referrer-policy"] == "no-referrer"


def sign_in(
    connection: http.client.HTTPConnection, token: str, path: str = "/sign-in", **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    """Send a token as the form does; return status, body and headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(
        "POST",
        path,
        f"token={token}",
        {"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html", **named},
    )
    answer = connection.getresponse()
    return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}


def test_a_token_in_the_body_of_a_request_becomes_a_cookie(asking: http.client.HTTPConnection) -> None:
    status, body, answered = sign_in(asking, SECRET)
    assert (status, body) == (303, b"")
    assert answered["location"] == "/"
    cookie = answered["set-cookie"]
    assert SECRET not in cookie
    for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="):
        assert part in cookie
    pair = cookie.partition(";")[0]
    assert ask(asking, "/api/about", cookie=f"other=1; {pair}")[0] == 200
    assert ask(asking, "/api/about", cookie=pair[:-1] + ("0" if pair[-1] != "0" else "1"))[0] == 401


def test_a_token_in_an_address_is_taken_by_nobody_and_asked_for_by_none(asking: http.client.HTTPConnection) -> None:
    for path in (
        f"/?token={SECRET}",
        f"/api/runs?token={SECRET}",
        f"//evil.example/?token={SECRET}",
        f"/sign-in?token={SECRET}",
    ):
        status, body, answered = ask(asking, path, accept="text/html")
        assert status == 401
        assert not {"set-cookie", "location"} & set(answered)
        assert SECRET.encode() not in body
    page = ask(asking, "/", accept="text/html")[1]
    assert b'<form action="/sign-in" method="post">' in page


def test_who_gives_a_wrong_token_is_asked_again_and_too_long_a_one_is_not_read(
    asking: http.client.HTTPConnection, guarded: ServedRuns
) -> None:
    status, body, answered = sign_in(asking, "0" * 32)
    assert (status, b"This token is not known here." in body, b"<form" in body) == (401, True, True)
    assert "set-cookie" not in answered
    assert sign_in(asking, WRITER)[0] == 403
    assert sign_in(asking, SECRET, origin="http://evil.example", sec_fetch_site="cross-site")[0] == 403
    another = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=60)
    assert sign_in(another, "0" * 100_000)[0] == 403
    another.close()


def test_the_script_of_the_page_that_asks_is_given_to_everybody(asking: http.client.HTTPConnection) -> None:
    status, body, answered = ask(asking, "/static/signin.js")
    assert status == 200
    assert b"#token=" in body
    assert answered["content-type"].startswith("text/javascript")


def test_a_browser_is_asked_for_its_token_by_a_page(asking: http.client.HTTPConnection) -> None:
    status, body, answered = ask(asking, "/", accept="text/html")
    assert status == 401
    assert b"<form" in body
    assert answered["content-type"].startswith("text/html")


def test_a_cookie_is_for_one_client_and_ends_with_its_token() -> None:
    access = Access(TOKENS)
    value = access.by_form(f"token={SECRET}".encode(), "10.0.0.1")
    assert access.by_cookie(value, "10.0.0.1")
    assert not access.by_cookie(value, "10.0.0.2")
    assert not Access(TOKENS[1:]).by_cookie(value, "10.0.0.1")
    name, _, proof = value.split(":")
    assert not access.by_cookie(f"{name}:1:{proof}", "10.0.0.1")
    for damaged in ("", ":", "::", "reader", "reader:x:y", f"reader:{'9' * 40}:é", "é:1:2"):
        assert not access.by_cookie(damaged, "10.0.0.1")


def test_a_connection_of_another_user_needs_a_token_and_ones_own_does_not(made_folder: RunFolder) -> None:
    with ServedRuns(made_folder.root.parent, users=[os.geteuid()]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        assert ask(connection, "/api/about")[0] == 200
        assert ask(connection, "/api/about", authorization="Bearer " + "0" * 32)[0] == 401
        connection.close()
    with ServedRuns(made_folder.root.parent, users=[NOBODY]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        status, body, _ = ask(connection, "/api/about")
        assert status == 401
        assert "--tokens" in json.loads(body)["error"]["next"]
        connection.close()


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_kernel_tells_whose_socket_it_is(family: int, host: str) -> None:
    with socket.create_server((host, 0), family=family) as listener:
        with socket.create_connection(listener.getsockname()[:2]) as near:
            far, _ = listener.accept()
            with far:
                local, remote = near.getsockname()[:2], far.getsockname()[:2]
                assert socket_owner(local, remote) == os.geteuid()
                assert socket_owner(remote, (host, 1)) is None
                near.close()
                assert socket_owner(local, remote) is None, "what was closed is shown as root's, and is nobody's"


def test_an_ipv4_client_of_an_ipv6_listener_is_found() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
            far, address = listener.accept()
            with far:
                assert address[0].startswith("::ffff:")
                assert socket_owner(address[:2], far.getsockname()[:2]) == os.geteuid()


def test_a_machine_that_does_not_tell_has_nobody(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    ends = (("127.0.0.1", 1000), ("127.0.0.1", 2000))
    assert socket_owner(*ends, tables=[table]) is None
    table.write_text("  sl  local_address rem_address   st\n   0: nonsense\n 1: " + "x " * 20 + "\n")
    assert socket_owner(*ends, tables=[table]) is None


async def _owner(peers: Peers, ends: tuple[tuple[str, int], tuple[str, int]]) -> int | None:
    return await peers.owner({"client": ends[0], "server": ends[1]})


def test_the_same_ends_are_asked_about_again_for_a_new_connection(tmp_path: Path) -> None:
    import asyncio

    table = tmp_path / "tcp"
    ends = (("127.0.0.1", 1000), ("127.0.0.1", 2000))
    line = " 0: 0100007F:03E8 0100007F:07D0 01 0:0 0:0 0 {} 0 5 1\n"
    peers = Peers([table])
    table.write_text(line.format(7))
    peers.opened(ends)
    assert asyncio.run(_owner(peers, ends)) == 7
    table.write_text(line.format(8))
    assert asyncio.run(_owner(peers, ends)) == 7
    peers.closed(ends)
    peers.opened(ends)
    assert asyncio.run(_owner(peers, ends)) == 8


class _CountedTable:
    """A table of sockets that counts how often it is opened."""

    def __init__(self, path: Path) -> None:
        self.path, self.looks = path, 0

    def __fspath__(self) -> str:
        self.looks += 1
        return str(self.path)


def test_a_thousand_strangers_who_ask_at_once_cost_a_few_looks_at_the_tables(tmp_path: Path) -> None:
    import asyncio

    table, server = _CountedTable(tmp_path / "tcp"), ("127.0.0.1", 2000)
    line = " 0: 0100007F:{:04X} 0100007F:07D0 01 0:0 0:0 0 {} 0 5 1\n"
    table.path.write_text("".join(line.format(port, 7 if port == 3500 else 8) for port in range(3000, 4000)))
    peers = Peers([table])  # type: ignore[list-item]

    async def all_owners() -> list[int | None]:
        ends = [(("127.0.0.1", port), server) for port in range(3000, 4001)]
        for each in ends:
            peers.opened(each)
        asking = [asyncio.create_task(_owner(peers, each)) for each in ends]
        await asyncio.sleep(0)
        peers.closed(ends[0])
        return await asyncio.gather(*asking)

    owners = asyncio.run(all_owners())
    assert owners == [None] + [8] * 499 + [7] + [8] * 499 + [None]
    assert table.looks <= 2
