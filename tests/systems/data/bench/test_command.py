"""`cordee data bench` as people call it."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from cordee.core.errors import DataError
from cordee.systems.data.bench.remote import LoaderProcess
from cordee.systems.data.node.read.tokens.index import write_token_index
from support.data.shards import packed as pack

MINE = """
import os, signal, sys, time

def batches(root, batch=50, size=None):
    paths = sorted(os.path.join(at, name) for at, _, names in os.walk(root) for name in names)
    print("not JSON")
    class Loader:
        def __iter__(self):
            for first in range(0, len(paths), batch):
                yield [open(path, "rb").read() for path in paths[first : first + batch]]
    return Loader()

def generator(root):
    yield from batches(root)

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def leaves():
    sys.exit(7)

def wrong():
    raise RuntimeError("no files here")

def nothing():
    return []

def hangs():
    yield [b"x"]
    time.sleep(3600)

def breaks():
    yield [b"x"]
    raise OSError(5, "Input/output error")
"""


@pytest.fixture
def mine(bench: Any) -> Any:
    (bench.folder / "mine.py").write_text(MINE)
    return bench


@pytest.mark.usefixtures("real")
def test_our_loader_is_measured_beside_bare_reads(bench, packed):
    found = bench.json(str(packed), "--batch", "32")
    main = found["states"][found["cache"]]
    assert found["samples_per_s"] > 0
    assert found["limit_bytes_per_s"] > 0
    assert found["share_of_limit"] == pytest.approx(found["bytes_per_s"] / found["limit_bytes_per_s"])
    assert found["bytes_per_s"] / found["samples_per_s"] == pytest.approx(found["data"]["bytes"] / 300)
    assert (
        found["latency_s"]["p50"] <= found["latency_s"]["p95"] <= found["latency_s"]["p99"] <= found["latency_s"]["max"]
    )
    assert found["first_batch_s"] > 0
    assert len(main["samples_per_s_rounds"]) == main["rounds"] == 2
    assert found["data"] | {"identity": ""} == {
        **{"kind": "packed", "identity": "", "samples": 300, "files": 3, "whole": True},
        "bytes": found["data"]["bytes"],
    }
    assert (found["reads_per_sample"], found["bytes_per_read"]) == (main["reads_per_sample"], main["bytes_per_read"])


def test_endings_with_capitals_are_measured_like_others(bench):
    folder = bench.folder / "camera"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number}.JPEG").write_bytes(bytes(2000))
    pack(folder, bench.folder / "camera-packed")
    found = bench.json(str(bench.folder / "camera-packed"), "--batch", "4", "--cache", "warm")
    assert found["samples_per_s"] > 0


@pytest.mark.gate
@pytest.mark.usefixtures("real")
def test_the_text_says_rates_limit_requests_and_where_the_limit_is_kept(bench, packed):
    done = bench(str(packed), "--batch", "32", "--cache", "warm")
    assert done.returncode == 0, done.stderr
    for words in ("cordee.dataset on", "of the limit", "p50", "samples/s", "requests", "memory copy", "is kept"):
        assert words in done.stdout, words


def test_the_limit_is_found_by_a_training_afterwards(bench, packed, monkeypatch):
    from cordee.systems.data.node.read.limits import find_limit
    from cordee.systems.data.node.shards.index import open_index

    found = bench.json(str(packed), "--cache", "warm")
    kept = find_limit(open_index(packed).id, packed, environ=bench.env)
    assert kept is not None
    assert kept.bytes_per_s == found["limit_bytes_per_s"]
    assert (bench.folder / "cache").exists()
    assert not list(packed.glob("*.json")), "nothing is written into the data set"


@pytest.mark.usefixtures("real")
def test_a_token_set_is_measured_in_samples_of_a_length(bench, tmp_path):
    numpy.arange(100_000, dtype="<u2").tofile(tmp_path / "text.bin")
    write_token_index(tmp_path / "text.idx", "<u2", numpy.array([100_000]))
    found = bench.json(str(tmp_path / "text.bin"), "--length", "128", "--cache", "warm")
    assert (found["data"]["kind"], found["data"]["samples"]) == ("tokens", 99_999 // 128)
    assert found["bytes_per_s"] / found["samples_per_s"] == pytest.approx(2 * 129)


@pytest.mark.usefixtures("real")
def test_files_that_belong_together_are_one_sample(bench, tmp_path):
    for number in range(64):
        (tmp_path / "set").mkdir(exist_ok=True)
        (tmp_path / "set" / f"{number}.jpg").write_bytes(bytes(3000))
        (tmp_path / "set" / f"{number}.txt").write_bytes(bytes(100))
    found = bench.json(str(tmp_path / "set"), "--batch", "16", "--cache", "warm")
    assert (found["data"]["kind"], found["data"]["samples"], found["data"]["files"]) == ("files", 64, 128)
    assert found["bytes_per_s"] / found["samples_per_s"] == pytest.approx(3100)


def test_the_name_of_a_jobs_data_set_is_enough(bench, packed):
    bench.env["CORDEE_DATA_CORPUS"] = str(packed)
    assert bench.json("corpus", "--cache", "warm")["target"] == str(packed)


@pytest.mark.usefixtures("real")
def test_only_some_fields_are_counted(bench, packed):
    whole = bench.json(str(packed), "--cache", "warm", "--no-keep")
    some = bench.json(str(packed), "--cache", "warm", "--fields", "txt", "--no-keep")
    assert whole["kept"] is None
    assert some["data"]["bytes"] == 4 * 300 < whole["data"]["bytes"]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("place", ["mine:batches", "mine.py:batches", "mine:generator"])
def test_a_loader_of_the_users_own_is_measured(mine, files, place):
    found = mine.json(str(files), "--loader", place, "--args", f'{{"root": "{files}"}}', "--cache", "warm")
    assert found["loader"] == place
    assert found["data"]["kind"] == "files"
    assert found["bytes_per_s"] / found["samples_per_s"] == pytest.approx(found["data"]["bytes"] / 300)
    assert found["reads_per_sample"] >= 1


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("mine:killed", "the loader's process was killed by SIGKILL"),
        ("mine:leaves", "the loader failed: SystemExit: 7"),
        ("mine:wrong", "the loader failed: RuntimeError: no files here"),
        ("mine:breaks", "the loader failed: OSError: [Errno 5] Input/output error"),
        ("mine:nothing", "the loader gave no samples"),
        ("mine:absent", "the loader failed: AttributeError"),
        ("absent:make", "the loader failed: ModuleNotFoundError"),
    ],
)
def test_a_loader_that_fails_is_told_clearly(mine, files, function, said):
    found = mine.json(str(files), "--loader", function, code=5)
    assert found["error"]["kind"] == "data"
    assert found["error"]["text"].startswith(said)
    assert found["error"]["given"] == function


def test_a_loader_that_hangs_is_ended(mine, monkeypatch):
    monkeypatch.chdir(mine.folder)
    request = {"function": "mine:hangs", "batch": 1, "target": "x"}
    with LoaderProcess(request, grace_s=0.2) as loader, pytest.raises(DataError, match="gave nothing for"):
        loader.play(0.1)
    assert loader._process.returncode is not None


@pytest.mark.usefixtures("real")
def test_too_slow_for_what_is_needed_is_exit_code_1(mine, files):
    arguments = [str(files), "--loader", "mine:batches", "--args", f'{{"root": "{files}"}}']
    found = mine.json(*arguments, "--need", "1e12", code=1)
    assert found["enough"] is False
    assert found["advice"][0]["rule"] == "data.need"
    assert mine.json(*arguments, "--need", "1")["enough"] is True


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere"], 2, "there is no data set 'nowhere': neither a path nor"),
        ([__file__], 5, "samples cannot be read from this file"),
        ([".", "--loader", "mine"], 2, "a loader is a function in a module"),
        ([".", "--args", "{}"], 2, "--args are the arguments of a --loader"),
        ([".", "--loader", "mine:batches", "--args", "{"], 2, "--args is not JSON"),
        ([".", "--loader", "mine:batches", "--args", "[]"], 2, "--args is not a JSON object"),
        ([".", "--need", "5", "--run", "last"], 2, "--need and --run cannot be combined"),
    ],
)
def test_a_wrong_call_is_refused_with_what_is_allowed(bench, arguments, code, said):
    found = bench.json(*arguments, code=code)
    assert found["error"]["text"].startswith(said)
