"""`cordee data fetch`: what is wanted arrives whole, what must not be reached is not, and each URL ends in the account."""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
import time

import pytest
from click.testing import CliRunner
from tests.systems.data.fetch.web_server import JPEG, SHA256, WebServer

from cordee.core.errors import DocumentError, UsageError
from cordee.faces.cli import cordee as main
from cordee.systems.data.fetch import connection, download
from cordee.systems.data.fetch.content import look_at
from cordee.systems.data.fetch.download import Download, Gone, Later, Limits, file_name
from cordee.systems.data.fetch.listing import WantedFile, read_list
from cordee.systems.data.fetch.reach import Reach, Refused, site_of
from cordee.systems.data.fetch.run import BlockList, FetchRun

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


@pytest.fixture(scope="module")
def web():
    server = WebServer()
    yield server
    server.close()


@pytest.fixture
def fetch(tmp_path):
    def call(url: str, reach: Reach | None = None, limits: Limits | None = None, **wanted: str):
        return Download(tmp_path, reach or Reach(private=LOOPBACK), limits or Limits()).fetch(WantedFile(url, **wanted))

    return call


def test_a_file_arrives_whole_with_its_name_and_digest(fetch, web, tmp_path):
    got = fetch(web.url("cat.jpg"), sha256=SHA256, name="cat.jpg", type="image/*")
    assert (got.bytes, got.sha256, got.address) == (len(JPEG), SHA256, "127.0.0.1")
    assert (tmp_path / "cat.jpg").read_bytes() == JPEG
    assert [path.name for path in tmp_path.iterdir()] == ["cat.jpg"]


@pytest.mark.parametrize(
    ("path", "wanted", "why"),
    [
        ("dead", {"type": "image/*"}, "type"),
        ("dead", {}, "type"),
        ("program", {}, "type"),
        ("cat.jpg", {"type": "image/png"}, "type"),
        ("cat.jpg", {"sha256": "0" * 64}, "checksum"),
        ("cat.jpg", {"md5": "0" * 32}, "checksum"),
        ("encoded", {}, "encoding"),
        ("forbidden", {}, "status"),
        ("cat.jpg", {"name": "../x"}, "name"),
        ("cat.jpg", {"name": "fetch.jsonl"}, "name"),
        ("redirect?http://169.254.169.254/latest/meta-data/", {}, "address"),
        ("redirect?http://10.0.0.1/", {}, "address"),
        ("redirect?file:///etc/passwd", {}, "scheme"),
        ("redirect?/redirect?/redirect?/redirect?/redirect?/redirect?/redirect?/cat.jpg", {}, "redirect"),
    ],
)
def test_what_is_not_what_was_meant_is_refused_and_leaves_nothing(fetch, web, tmp_path, path, wanted, why):
    with pytest.raises(Refused) as refused:
        fetch(web.url(path), **wanted)
    assert refused.value.why == why, refused.value
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[::127.0.0.1]",
        "0.0.0.0",
        "[::]",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00::1]",
        "224.0.0.1",
        "100.64.0.1",
        "localhost",
    ],
)
def test_no_way_to_write_a_private_address_is_reached(fetch, tmp_path, host):
    with pytest.raises(Refused) as refused:
        fetch(f"http://{host}:1/", Reach())
    assert refused.value.why == "address"


def test_only_the_address_that_was_looked_at_is_connected_to(web, tmp_path):
    """A name server that tells something else each time (DNS rebinding) wins nothing."""
    told = iter([["127.0.0.1"], ["10.0.0.1"]])
    one = Download(tmp_path, Reach(private=LOOPBACK), Limits(), lambda host, port: next(told))
    assert one.fetch(WantedFile(f"http://rebind.example:{web.port}/cat.jpg")).address == "127.0.0.1"
    with pytest.raises(Refused):
        one.fetch(WantedFile(f"http://rebind.example:{web.port}/cat.jpg"))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://a.example/", "scheme"),
        ("https://u:p@a.example/", "url"),
        ("https://a.example:99999/", "url"),
        ("https://", "url"),
        ("https://a.example/\nb", "url"),
        ("https://evil.example/", "host"),
        ("https://notgood.example/", "host"),
    ],
)
def test_urls_that_may_not_be_fetched_are_refused_before_anybody_is_asked(url, why):
    with pytest.raises(Refused) as refused:
        Reach(hosts=("good.example",)).split(url)
    assert refused.value.why == why
    assert Reach(hosts=("good.example",)).split("https://www.good.example/x").hostname == "www.good.example"


def test_a_torn_file_is_gone_on_with(fetch, web, tmp_path):
    with pytest.raises(Later, match=r"ended after|IncompleteRead"):
        fetch(web.url("torn"), name="cat.jpg")
    got = fetch(web.url("torn"), name="cat.jpg", sha256=SHA256)
    assert got.resumed == 50_000
    assert web.asked[-1] == ("/torn", "bytes=50000-")
    assert (tmp_path / "cat.jpg").read_bytes() == JPEG


@pytest.mark.parametrize("path", ["trickle", "header"])
def test_a_tarpit_is_left_soon(fetch, web, monkeypatch, path):
    monkeypatch.setattr(download, "_WATCHED_S", 0.4)
    monkeypatch.setattr(download, "_HEAD_S", 0.4)
    began = time.monotonic()
    with pytest.raises(Later):
        fetch(web.url(path))
    assert time.monotonic() - began < 5
    assert download._HEAD_S + connection._CONNECT_S < 30


def test_what_is_gone_is_told_apart(fetch, web):
    with pytest.raises(Gone):
        fetch(web.url("nothing"))


def test_too_large_files_are_refused(fetch, web):
    with pytest.raises(Refused) as refused:
        fetch(web.url("cat.jpg"), limits=Limits(most_bytes=1000))
    assert refused.value.why == "size"


@pytest.mark.parametrize(("hook", "text"), [(("false",), "ended with 1"), (("no-such-scanner",), "could not look")])
def test_the_sites_scanner_says_the_last_word(fetch, web, tmp_path, hook, text):
    with pytest.raises(Refused, match=text):
        fetch(web.url("cat.jpg"), limits=Limits(hook=hook))
    assert list(tmp_path.iterdir()) == []
    assert fetch(web.url("cat.jpg"), limits=Limits(hook=("test", "-s"))).bytes == len(JPEG)


def test_a_proxy_is_told_the_address_that_was_looked_at(fetch, web, monkeypatch):
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as proxy:

        def serve() -> None:
            one, _ = proxy.accept()
            asked.append(one.recv(4096))
            far = socket.create_connection(("127.0.0.1", web.port))
            one.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            far.sendall(one.recv(4096))
            while data := far.recv(65536):
                one.sendall(data)
            one.close()

        threading.Thread(target=serve, daemon=True).start()
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        assert fetch(web.url("cat.jpg")).bytes == len(JPEG)
    assert asked[0].startswith(f"CONNECT 127.0.0.1:{web.port} ".encode())


def test_a_list_is_fetched_and_accounted_and_the_second_time_nothing_is_asked(web, tmp_path):
    lines = "\n".join(web.url(path) for path in ("cat.jpg", "cat.jpg?2", "nothing", "dead", "busy"))
    (tmp_path / "urls.txt").write_text(f"# a comment\n{lines}\nhttp://10.0.0.1/x\n")
    words = [
        "data",
        "fetch",
        str(tmp_path / "urls.txt"),
        "--to",
        str(tmp_path / "out"),
        "--private",
        "127.0.0.0/8",
        "--json",
    ]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1, done.output
    told = json.loads(done.output)
    assert (told["fetched"], told["gone_count"], told["refused_count"], told["failed_count"]) == (2, 1, 2, 1)
    assert {entry["why"] for entry in told["refused"]} == {"type", "address"}
    account = [json.loads(line) for line in (tmp_path / "out" / "fetch.jsonl").read_text().splitlines()]
    assert len(account) == 6
    asked = len(web.asked)
    again = json.loads(CliRunner().invoke(main, words).output)
    assert (again["fetched"], again["already"]) == (0, 2)
    assert "/cat.jpg" not in {path for path, _ in web.asked[asked:]}


def test_a_site_is_not_asked_more_often_than_it_bears(web, tmp_path):
    wanted = [WantedFile(web.url(f"cat.jpg?{at}")) for at in range(6)]
    one = Download(tmp_path, Reach(private=LOOPBACK), Limits())
    began = time.monotonic()
    done = FetchRun(tmp_path, one, BlockList(None), rate=20.0).run(wanted)
    assert done.counts["fetched"] == 6
    assert time.monotonic() - began >= 5 / 20


def test_blocked_sites_are_not_asked_not_even_by_a_redirect(web, tmp_path):
    (tmp_path / "blocked").write_text("example.org # asked us to stop\n127.0.0.1\n")
    blocked = BlockList(tmp_path / "blocked")
    with pytest.raises(Refused):
        blocked.require("img.example.org")
    blocked.require("notexample.org")
    one = Download(tmp_path, Reach(private=LOOPBACK), Limits(), allowed=blocked.require)
    asked = len(web.asked)
    assert FetchRun(tmp_path, one, blocked).run([WantedFile(web.url("cat.jpg"))]).counts["refused"] == 1
    assert len(web.asked) == asked
    with pytest.raises(Refused):
        BlockList(tmp_path / "not-there").require("a.example")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", f"url,sha256,name\nhttps://a.example/x,{SHA256.upper()},x.jpg\n"),
        ("a.tsv", f"URL\tsha256\tfilename\nhttps://a.example/x\tsha256:{SHA256}\tx.jpg\n"),
        ("a.jsonl", json.dumps({"url": "https://a.example/x", "sha256": SHA256, "key": "x.jpg", "other": 1})),
    ],
)
def test_lists_have_many_forms(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_list(tmp_path / name) == [WantedFile("https://a.example/x", SHA256, "", "x.jpg")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "x,y\n1,2\n"),
        ("a.csv", "url,md5\nhttps://a.example,xyz\n"),
        ("a.jsonl", "[1]"),
        ("a.jsonl", "{"),
        ("a.txt", "\n# x\n"),
        ("a.txt", b"\xff\xfe\x00"),
        ("a.parquet", "no"),
    ],
)
def test_lists_that_cannot_be_read_are_refused(tmp_path, name, text):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises((UsageError, DocumentError)):
        read_list(tmp_path / name)


def test_names_and_sites():
    assert file_name(WantedFile("https://a.example/b/c.tar.gz?x=1")).endswith(".tar.gz")
    assert "/" not in file_name(WantedFile("https://a.example"))
    assert [site_of(host) for host in ("img.a.example", "x.y.co.uk", "a.b.c.de", "192.0.2.1")] == [
        "a.example",
        "y.co.uk",
        "c.de",
        "192.0.2.1",
    ]


def test_types_of_one_thing_are_one():
    look_at(b"RIFF\0\0\0\0WAVE", "audio/x-wav", "audio/*")
    look_at(b"plain text", "text/plain; charset=utf-8", "text/plain")
    look_at(b"\xff\xd8\xff\xe0", "", "")
    with pytest.raises(Refused):
        look_at(b"\x89PNG\r\n\x1a\n", "image/jpeg", "")
