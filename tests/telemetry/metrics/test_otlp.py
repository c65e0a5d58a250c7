"""OTLP by its own schema and exporter, and everything that only calls itself OTLP."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
import time
import zlib
from collections.abc import Iterator

import pytest
from google.protobuf.json_format import MessageToJson
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from cordee.telemetry.node.metrics import otlp
from cordee.telemetry.node.metrics.otlp import Batch, read_json, read_protobuf
from cordee.telemetry.node.metrics.points import COUNTER, DELTA, DELTA_HISTOGRAM, GAUGE, HISTOGRAM
from cordee.telemetry.node.metrics.receiver import MOST_BYTES, MOST_INFLATED_BYTES, Receiver
from cordee.telemetry.node.metrics.side import _reserved_port

START, NOW = 1_795_295_000_000_000_000, 1_795_295_010_000_000_000


def request() -> ExportMetricsServiceRequest:
    """Every kind of metric, by the schema's own library."""
    whole = ExportMetricsServiceRequest()
    resource = whole.resource_metrics.add()
    resource.resource.attributes.add(key="cordee.rank").value.string_value = "3"
    resource.resource.attributes.add(key="pid").value.int_value = 42
    resource.schema_url = "https://example.org"
    scope = resource.scope_metrics.add()
    scope.scope.name = "me"
    times = {"start_time_unix_nano": START, "time_unix_nano": NOW}
    gauge = scope.metrics.add(name="temperature", unit="Cel", description="d").gauge.data_points
    warm = gauge.add(as_double=1.5, **times)
    warm.attributes.add(key="place").value.string_value = "in"
    warm.attributes.add(key="on").value.bool_value = True
    gauge.add(as_int=-7, **times)
    gauge.add(flags=1, **times)
    level = scope.metrics.add(name="level").sum
    level.aggregation_temporality = 2
    level.data_points.add(as_int=4, **times)
    steps = scope.metrics.add(name="steps").sum
    steps.aggregation_temporality, steps.is_monotonic = 2, True
    steps.data_points.add(as_int=100, **times)
    more = scope.metrics.add(name="more").sum
    more.aggregation_temporality, more.is_monotonic = 1, True
    more.data_points.add(as_double=5.0, **times)
    wait = scope.metrics.add(name="wait", unit="s").histogram
    wait.aggregation_temporality = 1
    wait.data_points.add(count=4, sum=2.0, bucket_counts=[1, 3], explicit_bounds=[0.1], min=0.0, **times)
    exponential = scope.metrics.add(name="exponential").exponential_histogram
    exponential.aggregation_temporality = 2
    exponential.data_points.add(count=4, sum=2.0, scale=3, **times)
    scope.metrics.add(name="summary").summary.data_points.add(count=2, sum=9.0, **times)
    return whole


def in_json() -> str:
    return MessageToJson(request(), use_integers_for_enums=True)


EXPECTED = [
    ("temperature", (("on", "true"), ("place", "in")), GAUGE, 1.5, 0.0),
    ("temperature", (), GAUGE, -7.0, 0.0),
    ("level", (), GAUGE, 4.0, 0.0),
    ("steps", (), COUNTER, 100.0, 0.0),
    ("more", (), DELTA, 5.0, 0.0),
    ("wait", (), DELTA_HISTOGRAM, 2.0, 4),
    ("exponential", (), HISTOGRAM, 2.0, 4),
    ("summary", (), HISTOGRAM, 9.0, 2),
]


def summary(batches: list[Batch]) -> list[tuple]:
    (batch,) = batches
    assert batch.resource == {"cordee.rank": "3", "pid": "42"}
    assert {(point.start, point.time) for point in batch.points} == {(START / 1e9, NOW / 1e9)}
    return [(point.name, point.labels, point.kind, point.value, point.observations) for point in batch.points]


def test_every_kind_of_metric_is_read_from_protobuf_and_json_alike():
    assert summary(read_protobuf(request().SerializeToString())) == EXPECTED
    text = in_json()
    assert '"timeUnixNano": "1795295010000000000"' in text
    assert summary(read_json(text.encode())) == EXPECTED


def test_fields_that_are_not_known_are_passed_over():
    unknown = bytes([0xF8, 0x7F, 1, 0xF5, 0x7F, 1, 2, 3, 4, 0xF1, 0x7F, *range(8), 0xFA, 0x7F, 2, 9, 9])
    assert summary(read_protobuf(unknown + request().SerializeToString() + unknown)) == EXPECTED


@settings(max_examples=50)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    for read in (read_protobuf, read_json):
        try:
            read(data)
        except ValueError:
            continue


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_request_with_one_byte_wrong_is_read_or_refused(at, byte):
    data = bytearray(request().SerializeToString())
    data[at % len(data)] = byte
    try:
        read_protobuf(bytes(data))
    except ValueError:
        return


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"resourceMetrics": 3},
        {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"gauge": {"dataPoints": [{"asInt": "x"}]}}]}]}]},
        {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"sum": {"aggregationTemporality": "DELTA"}}]}]}]},
        {
            "resourceMetrics": [
                {"scopeMetrics": [{"metrics": [{"gauge": {"dataPoints": [{"asInt": 1, "timeUnixNano": [1]}]}}]}]}
            ]
        },
    ],
)
def test_json_of_another_shape_is_refused(document):
    with pytest.raises(ValueError, match=r".+"):
        read_json(json.dumps(document).encode())


@pytest.mark.parametrize("data", [b"[" * 1_000_000, b'{"a":' * 1_000_000, b'{"a": ' + b"9" * 2_000_000 + b"}"])
def test_json_that_costs_more_than_it_says_is_refused(data):
    with pytest.raises(ValueError, match=r".+"):
        read_json(data)


def test_millions_of_empty_fields_are_refused(monkeypatch):
    monkeypatch.setattr(otlp, "MOST_FIELDS", 1000)
    monkeypatch.setattr(otlp, "MOST_POINTS", 100)
    with pytest.raises(ValueError, match="more than 1000 fields"):
        read_protobuf(b"\x0a\x00" * 2000)
    many = ExportMetricsServiceRequest()
    metric = many.resource_metrics.add().scope_metrics.add().metrics.add(name="x")
    for _ in range(101):
        metric.gauge.data_points.add(as_double=1.0)
    with pytest.raises(ValueError, match="more than 100 points"):
        read_protobuf(many.SerializeToString())


class Sink:
    """A receiver and what it has taken."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self._reserved = _reserved_port()
        assert self._reserved is not None
        self.port = self._reserved.getsockname()[1]
        self.receiver = Receiver(self.port, "secret", self.batches.extend)
        threading.Thread(target=self.receiver.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/secret/v1/metrics"

    def post(
        self, body: bytes, path: str = "/secret/v1/metrics", method: str = "POST", **headers: str
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {
            "Content-Type": "application/x-protobuf",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    def close(self) -> None:
        self.receiver.shutdown()
        self.receiver.server_close()
        self._reserved.close()


@pytest.fixture
def sink() -> Iterator[Sink]:
    sink = Sink()
    yield sink
    sink.close()


def test_requests_are_taken_as_they_are_and_compressed(sink):
    data = request().SerializeToString()
    assert sink.post(data) == (200, b"")
    assert sink.post(gzip.compress(data), Content_Encoding="gzip") == (200, b"")
    assert sink.post(zlib.compress(data), Content_Encoding="deflate") == (200, b"")
    assert sink.post(in_json().encode(), Content_Type="application/json; charset=utf-8") == (200, b"{}")
    assert [summary([batch]) for batch in sink.batches] == [EXPECTED] * 4


def test_what_is_refused_is_told_why_and_the_next_request_is_taken(sink):
    data = request().SerializeToString()
    bomb = gzip.compress(b"\0" * (MOST_INFLATED_BYTES + 1))
    assert sink.post(data, "/v1/metrics")[0] == 404
    assert sink.post(data, "/secreT/v1/metrics")[0] == 404
    assert sink.post(b"", method="GET")[0] == 501
    assert sink.post(data, Content_Type="text/plain")[0] == 415
    assert sink.post(data, Content_Encoding="br")[0] == 415
    assert sink.post(data, Content_Length="-1")[0] == 411
    assert sink.post(b"", Content_Length=str(MOST_BYTES + 1))[0] == 413
    assert sink.post(b"garbage")[0] == 400
    assert sink.post(b"garbage", Content_Type="application/json")[0] == 400
    assert sink.post(b"garbage", Content_Encoding="gzip")[0] == 400
    assert sink.post(gzip.compress(data)[:-4], Content_Encoding="gzip")[0] == 400
    assert sink.post(bomb, Content_Encoding="gzip")[0] == 413
    assert sink.batches == []
    assert sink.receiver.refused == 11
    assert sink.post(data)[0] == 200


def test_connections_beyond_the_most_are_closed_and_room_comes_back(sink, monkeypatch):
    sink.receiver._room = threading.BoundedSemaphore(1)
    holding = http.client.HTTPConnection("127.0.0.1", sink.port, timeout=60)
    holding.request(
        "POST", "/secret/v1/metrics", request().SerializeToString(), {"Content-Type": "application/x-protobuf"}
    )
    assert holding.getresponse().read() == b""
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        sink.post(b"")
    holding.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            assert sink.post(request().SerializeToString())[0] == 200
            break
        except (ConnectionError, http.client.HTTPException):
            time.sleep(0.01)
    assert len(sink.batches) == 2


def test_the_exporter_of_opentelemetry_sends_what_is_recorded(sink):
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource

    exporter = OTLPMetricExporter(endpoint=sink.url, compression=Compression.Gzip)
    provider = MeterProvider(
        [PeriodicExportingMetricReader(exporter, export_interval_millis=60_000)],
        resource=Resource.create({"cordee.rank": 5}),
    )
    meter = provider.get_meter("test")
    meter.create_gauge("loss", unit="1").set(0.25, {"phase": "train"})
    meter.create_counter("tokens").add(512)
    meter.create_histogram("step", unit="s").record(2.0)
    provider.shutdown()
    (batch,) = sink.batches
    assert batch.resource["cordee.rank"] == "5"
    found = {(point.name, point.labels, point.kind, point.value, point.observations) for point in batch.points}
    assert {
        ("loss", (("phase", "train"),), GAUGE, 0.25, 0.0),
        ("tokens", (), COUNTER, 512.0, 0.0),
        ("step", (), HISTOGRAM, 2.0, 1),
    } <= found
