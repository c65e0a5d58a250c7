"""The libraries themselves: what they keep is what they would keep without us, and the same numbers are recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.wire import pick_port

from .conftest import Rank

pytestmark = pytest.mark.campaign

WANDB = """
import json, os, struct, numpy, wandb
run = wandb.init(project="p", dir=os.environ["WANDB_DIR"])
for step in range(3):
    wandb.log({"loss": 1 / (step + 1), "note": "text"}, commit=False)
    run.log({"accuracy": step, "image": wandb.Image(numpy.zeros((2, 2))), "nested": {"a": step}})
wandb.log({"late": 5.0}, step=20)
wandb.log({"late": 6.0}, step=21)
run.finish()
wandb.teardown()  # the file is whole then
from wandb.proto.wandb_internal_pb2 import Record
log = open(run.settings.sync_file, "rb").read()
at, whole, rows = 7, b"", []
while at + 7 <= len(log):  # a header, then LevelDB's log: pieces of records in blocks of 32 KiB
    if -at % 32768 < 7 and at % 32768:
        at += -at % 32768
    _, length, kind = struct.unpack_from("<IHB", log, at)
    whole, at = (whole if kind in (3, 4) else b"") + log[at + 7 : at + 7 + length], at + 7 + length
    record = Record()
    if kind in (1, 4) and record.ParseFromString(whole) and record.WhichOneof("record_type") == "history":
        row = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
        rows.append({name: value for name, value in row.items() if name == "_step" or name[0] not in "_i"})
print(json.dumps(rows))
"""


@pytest.mark.gate
def test_wandb_offline_keeps_what_it_would_and_its_numbers_are_recorded(rank: Rank) -> None:
    done = rank(WANDB)
    assert done.code == 0, done.err
    rows = [{name: json.loads(value) for name, value in row.items()} for row in json.loads(done.out)]
    assert rows == [
        *[
            {"_step": step, "loss": pytest.approx(1 / (step + 1)), "note": "text", "accuracy": step, "nested.a": step}
            for step in range(3)
        ],
        {"_step": 20, "late": 5.0},
        {"_step": 21, "late": 6.0},
    ]
    assert done.values == [
        (0, {"loss": 1.0}),
        (0, {"accuracy": 0.0, "nested.a": 0.0}),
        (1, {"loss": 0.5}),
        (1, {"accuracy": 1.0, "nested.a": 1.0}),
        (2, {"loss": pytest.approx(1 / 3)}),
        (2, {"accuracy": 2.0, "nested.a": 2.0}),
        (20, {"late": 5.0}),
        (21, {"late": 6.0}),
    ]
    assert set(done.sources.values()) == {"wandb"}
    assert done.dropped == 0


BOARD = """
import json, sys
from torch.utils.tensorboard import SummaryWriter
from tensorboard.summary import Writer
import numpy, torch
torch_writer = SummaryWriter("a")
for step in range(3):
    torch_writer.add_scalar("loss", torch.tensor(0.5 * step), step)
    torch_writer.add_scalars("many", {"x": step, "y": -step}, step)
torch_writer.add_histogram("weights", numpy.ones(4), 1)
torch_writer.add_text("text", "hello", 1)
torch_writer.close()
from lightning.pytorch.loggers import TensorBoardLogger
logger = TensorBoardLogger(".", name="", version="c")
logger.log_metrics({"of_lightning": torch.tensor(4.0)}, step=9)
logger.save()
own = Writer("b")
own.add_scalar("own", 2.5, 7)
own.close()
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
kept = {}
for folder in ("a", "a/many_x", "a/many_y", "b", "c"):
    read = EventAccumulator(folder); read.Reload()
    for tag in read.Tags()["scalars"]:
        kept[f"{folder}:{tag}"] = [(event.step, event.value) for event in read.Scalars(tag)]
    for tag in read.Tags()["tensors"]:
        if tag == "own":
            kept[f"{folder}:{tag}"] = [(event.step, event.tensor_proto.float_val[0]) for event in read.Tensors(tag)]
print(json.dumps(kept))
"""


def test_tensorboard_reads_back_what_was_written_and_its_scalars_are_recorded(rank: Rank) -> None:
    done = rank(BOARD)
    assert done.code == 0, done.err
    assert json.loads(done.out.splitlines()[-1]) == {
        "a:loss": [[0, 0.0], [1, 0.5], [2, 1.0]],
        "a/many_x:many": [[0, 0.0], [1, 1.0], [2, 2.0]],
        "a/many_y:many": [[0, 0.0], [1, -1.0], [2, -2.0]],
        "b:own": [[7, 2.5]],
        "c:of_lightning": [[9, 4.0]],
    }
    assert done.values == [
        *[
            one
            for step in range(3)
            for one in ((step, {"loss": 0.5 * step}), (step, {"many/x": float(step), "many/y": -float(step)}))
        ],
        (9, {"of_lightning": 4.0}),
        (7, {"own": 2.5}),
    ]
    assert set(done.sources.values()) == {"tensorboard"}


@pytest.fixture
def mlflow_server(tmp_path: Path) -> Iterator[str]:
    port = pick_port("127.0.0.1")
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/mlflow.db",
        "--default-artifact-root",
        str(tmp_path / "artifacts"),
    ]
    with open(tmp_path / "server.log", "wb") as log:
        env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # it takes time and metrics need none
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, env=env, start_new_session=True)
    try:
        deadline = time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10).close()
                break
            except (OSError, urllib.error.URLError):
                assert server.poll() is None, (tmp_path / "server.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, 9)
        server.wait()


MLFLOW = """
import json, mlflow
mlflow.set_experiment("e")
with mlflow.start_run() as run:
    for step in range(3):
        mlflow.log_metric("loss", 0.5 * step, step=step)
        mlflow.log_metrics({"accuracy": step, "lr": 0.1}, step=step)
    mlflow.log_param("seed", 3)
client = mlflow.MlflowClient()
client.log_batch(run.info.run_id, metrics=[mlflow.entities.Metric("of_client", 4.0, 0, 9)])
names = ("loss", "accuracy", "lr", "of_client")
kept = {name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)] for name in names}
print(json.dumps(kept))
"""


@pytest.mark.campaign
def test_an_mlflow_server_keeps_what_it_is_sent_and_the_metrics_are_recorded(rank: Rank, mlflow_server: str) -> None:
    done = rank(MLFLOW, MLFLOW_TRACKING_URI=mlflow_server)
    assert done.code == 0, done.err
    assert json.loads(done.out.splitlines()[-1]) == {
        "loss": [[0, 0.0], [1, 0.5], [2, 1.0]],
        "accuracy": [[0, 0.0], [1, 1.0], [2, 2.0]],
        "lr": [[0, 0.1], [1, 0.1], [2, 0.1]],
        "of_client": [[9, 4.0]],
    }
    assert done.values == [
        *[one for step in range(3) for one in ((step, {"loss": 0.5 * step}), (step, {"accuracy": step, "lr": 0.1}))],
        (9, {"of_client": 4.0}),
    ]
    assert set(done.sources.values()) == {"mlflow"}
