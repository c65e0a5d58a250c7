"""Folders and S3 behave alike, and a store that fails is told of, in time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cordee.core.errors import DataError, UsageError
from cordee.systems.data.node.read.remote import Objects
from cordee.wire.stores import ObjectStore, Patience, open_store
from cordee.wire.stores.patience import Passing
from cordee.wire.stores.refusals import understood
from cordee.wire.stores.s3 import REQUEST_BYTES
from support.servers.object_store import CREDENTIALS, DisposableS3, FailingWay

IMPATIENT = Patience(total_s=3, tries=3, connect_s=1, stall_s=0.3, pause_s=0.01)


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path / "store" if request.param == "folder" else request.getfixturevalue("s3"))


@pytest.fixture
def way(server: DisposableS3, s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingWay]:
    with FailingWay(server.url) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.url)
        yield way


def test_what_is_written_is_listed_and_read_in_ranges(store: ObjectStore) -> None:
    content = os.urandom(100_000)
    for name in ("b", "a/x", "a.b/é %41", "a/b/c"):
        stored = store.write(name, iter([content[:60_000], content[60_000:]]))
        assert (stored.name, stored.bytes) == (name, len(content))
    names = ["a.b/é %41", "a/b/c", "a/x", "b"]
    assert [each.name for each in store.list()] == names
    assert [each.name for each in store.list("a")] == ["a/b/c", "a/x"]
    assert list(store.list("none")) == []
    assert store.read("a/x") == content
    assert store.read("b", 50_000, 20_000) == content[50_000:70_000]
    assert store.read("b", 7, 0) == b""
    with pytest.raises(DataError, match="ends 1 bytes before"):
        store.read("b", 99_999, 2)


def test_an_object_is_replaced_removed_and_may_be_gone_or_empty(store: ObjectStore) -> None:
    first = store.write("x", iter([b"first"]))
    second = store.write("x", iter([b"again"]))
    assert first.version != second.version
    assert store.look("x") == second
    assert store.read("x", 1, 3, version=second.version) == b"gai"
    with pytest.raises(DataError, match="changed after it was listed"):
        store.read("x", 1, 3, version=first.version)
    store.delete("x")
    store.delete("x")
    assert store.look("x") is None
    with pytest.raises(DataError) as caught:
        store.read("x", 0, 1)
    assert caught.value.given == store.path("x")
    assert store.write("empty", iter([])).bytes == 0
    assert store.read("empty") == b""


def test_a_file_of_many_requests_goes_there_and_back(store: ObjectStore, tmp_path: Path) -> None:
    content = os.urandom(1 << 20) * 40
    (tmp_path / "large").write_bytes(content)
    with open(tmp_path / "large", "rb") as file:
        assert store.write("large", file).bytes == len(content) > 2 * REQUEST_BYTES
    assert store.read("large") == content


def test_content_that_fails_on_its_way_leaves_what_was_there(store: ObjectStore) -> None:
    def failing() -> Iterator[bytes]:
        yield bytes(REQUEST_BYTES + 1)
        raise DataError("the source broke")

    store.write("x", iter([b"before"]))
    with pytest.raises(DataError, match="the source broke"):
        store.write("x", failing())
    assert store.read("x") == b"before"
    assert [each.name for each in store.list()] == ["x"]


def test_many_objects_are_listed_page_by_page(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordee.wire.stores.s3.PAGE", 3)
    store = open_store(s3)
    names = [f"{number:05}" for number in range(10)]
    for name in names:
        store.write(name, [b"x"])
    assert [each.name for each in store.list()] == names


@pytest.mark.parametrize("fault", ["failures", "cut", "silent", "broken"])
def test_what_passes_is_tried_again(s3: str, way: FailingWay, fault: str) -> None:
    content = os.urandom(50_000)
    open_store(s3).write("x", [content])
    store = open_store(s3, IMPATIENT)
    setattr(way, fault, 2)
    assert store.read("x", 100, 40_000) == content[100:40_100]
    setattr(way, fault, 1)
    assert [each.name for each in store.list()] == ["x"]
    way.matching = lambda method, path: method in ("PUT", "POST")
    if fault in ("failures", "broken"):
        setattr(way, fault, 1)
        assert store.write("y", [content, bytes(REQUEST_BYTES)]).bytes == len(content) + REQUEST_BYTES


ASKED: dict[str, Callable[[ObjectStore], object]] = {
    "list": lambda store: list(store.list()),
    "look at": lambda store: store.look("x"),
    "read 5 bytes at 7 of": lambda store: store.read("x", 7, 5),
    "write": lambda store: store.write("x", [b"x"]),
}


@pytest.mark.parametrize("request_", ASKED)
@pytest.mark.parametrize(
    ("fault", "said"), [("failures", "503 Service Unavailable"), ("silent", "did not answer in time")]
)
def test_a_store_that_does_not_serve_is_given_up_with_the_request_the_tries_and_the_time(
    s3: str, way: FailingWay, request_: str, fault: str, said: str
) -> None:
    setattr(way, fault, 1000)
    patience = Patience(total_s=1.5, tries=3, connect_s=1, stall_s=0.3, pause_s=0.01)
    with pytest.raises(DataError) as caught:
        ASKED[request_](open_store(s3, patience))
    error = caught.value
    assert said in error.text
    assert f"{request_} {s3}" in str(error.given)
    assert "times in" in error.text or "once in" in error.text
    assert "CORDEE_STORE_TIMEOUT" in str(error.next)
    assert not any(value in str(error) for value in list(CREDENTIALS.values())[:2])


def test_no_bucket_and_no_server_are_told_apart(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for request in ("list", "read 5 bytes at 7 of", "write"):
        with pytest.raises(DataError, match="no such bucket") as caught:
            ASKED[request](open_store("s3://other-bucket/x", IMPATIENT))
        assert caught.value.given == "s3://other-bucket"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"tried 3 times in .* no connection could be made"):
        open_store(s3, IMPATIENT).look("x")


def test_addresses_that_cannot_be_used_say_what_can(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("gs://bucket/x", "s3://", "https://host/x"):
        with pytest.raises(UsageError, match="cannot be used"):
            open_store(address)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://person:word@store.example:9000")
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    with pytest.raises(UsageError, match="not encrypted") as caught:
        open_store("s3://bucket/x")
    assert "word" not in str(caught.value)
    monkeypatch.setenv("CORDEE_STORE_TIMEOUT", "soon")
    with pytest.raises(UsageError, match="invalid CORDEE_STORE_TIMEOUT"):
        open_store("s3://bucket/x")


@pytest.mark.parametrize("opened", [open_store, Objects])
def test_a_profile_is_refused_by_name_where_there_are_no_credentials(
    monkeypatch: pytest.MonkeyPatch, opened: Callable[[str], object]
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "lab")
    with pytest.raises(UsageError, match=r"profiles of ~/\.aws are not read") as caught:
        opened("s3://bucket/x")
    assert caught.value.given == "AWS_PROFILE=lab"
    assert "export-credentials --profile lab" in str(caught.value.next)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    with pytest.raises(UsageError, match="one half") as caught:
        opened("s3://bucket/x")
    assert caught.value.given == "AWS_ACCESS_KEY_ID alone"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    opened("s3://bucket/x")


@pytest.mark.parametrize("opened", [open_store, Objects])
def test_only_this_machine_is_asked_unencrypted_unless_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, opened: Callable[[str], object]
) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    for address in ("http://store.example", "http://127.0.0.1.example:9000", "http://localhost:1@store.example"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with pytest.raises(UsageError, match="not encrypted"):
            opened("s3://bucket/x")
    for address in ("http://127.0.0.1:9000", "http://localhost", "http://[::1]:9000/path", "https://store.example"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        opened("s3://bucket/x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store.example")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    opened("s3://bucket/x")


def test_of_what_a_store_answers_only_status_and_code_are_told() -> None:
    answer = (
        "Generic S3 error: Error performing GET http://h/bucket/x in 5ms - Server returned non-2xx status code: "
        "403 Forbidden: <Error><Code>InvalidAccessKeyId</Code><AWSAccessKeyId>AKIASECRET</AWSAccessKeyId></Error>"
    )
    error = understood(RuntimeError(answer), "s3://bucket/x", "bucket")
    assert isinstance(error, DataError)
    assert "403 Forbidden InvalidAccessKeyId" in error.text
    assert "AWS_SECRET_ACCESS_KEY" in str(error.next)
    assert "AKIASECRET" not in str(error)
    for status in ("503 Service Unavailable", "429 Too Many Requests"):
        assert isinstance(understood(RuntimeError(f"status code: {status}: "), "s3://b/x", "b"), Passing)


def test_without_obstore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "CORDEE_STORE_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(DataError, match="obstore, which is not installed") as caught:
        open_store("s3://bucket/x").look("y")
    assert "cordee[s3]" in str(caught.value.next)
