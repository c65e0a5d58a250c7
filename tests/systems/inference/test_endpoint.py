"""The demo's model, served by the real `transformers serve` and asked by OpenAI's own library."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from pathlib import Path

import openai
import pytest
from tests.systems.inference.conftest import EXAMPLE
from tests.systems.services.conftest import services  # noqa: F401  a fixture

from cordee.systems.services.door.folder import DoorFolder

pytestmark = pytest.mark.usefixtures("real")

PROMPT, TOKENS = "def main():", 40


def text_of_the_training(checkpoint: Path) -> str:
    """Return what the model of train.py itself goes on with, the likeliest byte each time."""
    import torch
    import torch.distributed.checkpoint as dcp

    sys.path.insert(0, str(EXAMPLE))
    try:
        import train
    finally:
        sys.path.remove(str(EXAMPLE))
    model = train.CharGPT()
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=next(checkpoint.glob("step-*")), no_dist=True)
    model.load_state_dict(state["model"])
    codes = list(PROMPT.encode())
    for _ in range(TOKENS):
        with torch.inference_mode():
            code = int(model.eval()(torch.tensor([codes]))[0, -1].argmax())
        if code == 256:
            break
        codes.append(code)
    return bytes(codes[len(PROMPT) :]).decode(errors="replace")


class Client:
    """OpenAI's library as a shell would set it up that has read the endpoint's file; it never asks twice."""

    def __init__(self, told: dict) -> None:
        text = Path(told["client_file"]).read_text()
        lines = [line.removeprefix("export ").partition("=") for line in text.splitlines()]
        self.variables = {name: shlex.split(value)[0] for name, _, value in lines}
        self.model, self.key = self.variables["OPENAI_MODEL"], self.variables["OPENAI_API_KEY"]
        self.api = self.with_key(self.key)

    def with_key(self, key: str) -> openai.OpenAI:
        return openai.OpenAI(api_key=key, base_url=self.variables["OPENAI_BASE_URL"], max_retries=0)

    def says(self) -> str:
        asked = self.api.completions.create(model=self.model, prompt=PROMPT, max_tokens=TOKENS, temperature=0)
        return asked.choices[0].text

    def streams(self) -> list[str]:
        about = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": TOKENS, "temperature": 0}
        stream = self.api.chat.completions.create(model=self.model, stream=True, **about)
        return [one.choices[0].delta.content or "" for one in stream if one.choices]


def deploy(services, checkpoint: Path, *words: str) -> dict:  # noqa: F811
    model = ("--model", str(checkpoint), "--config", str(EXAMPLE / "serving"), "--set", "device=cpu")
    code, told, said = services.call("deploy", "endpoint", *model, *words, "--json")
    assert code == 0, said
    return told


def test_the_endpoint_of_a_checkpoint_says_what_the_training_would(services, checkpoint):  # noqa: F811
    client, wanted = Client(deploy(services, checkpoint)), text_of_the_training(checkpoint)
    assert client.says() == wanted
    pieces = client.streams()
    assert "".join(pieces) == wanted
    assert len([one for one in pieces if one]) > 1
    assert [one.id for one in client.api.models.list().data] == [client.model]
    with pytest.raises(openai.AuthenticationError):
        client.with_key("guessed").models.list()
    code, load, said = services.call(
        "load", "endpoint", "--at-once", "1,2", "--requests", "4", "--tokens", "8", "--json"
    )
    assert code == 0, said
    assert [one["failed"] for one in load["steps"]] == [0, 0]
    assert all(one["first_token_s"]["p50"] > 0 and one["tokens_per_s"] > 0 for one in load["steps"])
    assert json.dumps(load).count(client.key) == 0
    code, _, said = services.call("deploy", "endpoint", "--model", str(checkpoint), "--json")
    assert (code != 0, "runs already" in said) == (True, True)
    code, _, said = services.call("deploy", "mlflow", "--model", str(checkpoint), "--json")
    assert (code != 0, "serves no model" in said) == (True, True)


class Asking:
    """A client that asks all the time."""

    def __init__(self, client: Client) -> None:
        self.texts, self.wrong, self._ended = [], [], threading.Event()
        self._client = client
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        while not self._ended.is_set():
            try:
                self.texts += [self._client.says(), "".join(self._client.streams())]
            except openai.OpenAIError as error:
                self.wrong.append(repr(error))

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture
def doored(services):  # noqa: F811
    assert services.call("door", "start")[0] == 0
    yield services
    DoorFolder().stop()


@pytest.mark.campaign
def test_it_says_the_same_in_the_next_allocation_and_from_a_backup_elsewhere(slurm, doored, checkpoint, monkeypatch):
    on_slurm = ("--on", "slurm", "--job", "vet.max_load=1000")
    first = deploy(doored, checkpoint, "--door", *on_slurm)
    client, wanted = Client(first), text_of_the_training(checkpoint)
    asking = Asking(client)
    try:
        code, after, said = doored.call("handover", "endpoint", "--drain", "60s", "--json")
    finally:
        asking.end()
    assert code == 0, said
    assert after["services"][0]["run"] != first["run"]
    assert asking.wrong == []
    assert client.says() == "".join(client.streams()) == wanted
    assert set(asking.texts) == {wanted}
    runs = (first["run"], after["services"][0]["run"])
    assert len({path.name for run in runs for path in Path(run, "submit").glob("slurm-*.out")}) == 2  # of two jobs

    file = doored.folder / "endpoint.tar"
    assert doored.call("stop", "endpoint")[0] == 0
    assert doored.call("backup", "endpoint", "-o", str(file))[0] == 0
    assert doored.call("stop", "endpoint", "--remove")[0] == 0
    monkeypatch.setenv("CORDEE_SERVICES", str(doored.folder / "elsewhere"))
    code, back, said = doored.call("restore", str(file), "--on", "local", "--json")
    assert code == 0, said
    assert Client(back["services"][0]).says() == wanted
    doored.call("stop", "endpoint")
    monkeypatch.setenv("CORDEE_SERVICES", str(doored.folder / "services"))
