"""Documents of others that are nested deeper than Python's readers go are refused, or passed over, as other rubbish is."""

from __future__ import annotations

import base64
import socket
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cordee.backends.local.node.allocation import LocalAllocation
from cordee.core.documents.config_paths import profile_runs
from cordee.core.errors import CordeeError
from cordee.runs.folder import RunFolder
from cordee.runs.news import NewsReader
from cordee.runs.state import RunState
from cordee.systems.data.fetch.listing import read_list
from cordee.systems.data.node.read.batches.decoders import DECODERS
from cordee.systems.data.node.shards.index import MAGIC
from cordee.systems.data.node.shards.index import read_header as read_index
from cordee.systems.data.pack._base import Unreadable
from cordee.systems.data.pack.already_packed import known_record
from cordee.systems.data.pack.formats.names import NAMES, members_of
from cordee.systems.data.pack.origins.parquet_columns import _names_of_classes
from cordee.systems.data.pack.tokens import documents as token_documents
from cordee.systems.data.pack.tokens.target import known_about
from cordee.systems.data.survey.chunks import zarr_chunks
from cordee.systems.egress.node.counts import FileCounts
from cordee.systems.environments.connect import _told_by_nodes
from cordee.systems.environments.edf import views
from cordee.systems.environments.images.registry.client import Skopeo
from cordee.systems.environments.node.container import _answer_in
from cordee.systems.environments.node.engines.namespace.gpus.cdi import Specs
from cordee.systems.environments.node.engines.namespace.gpus.edits import EngineRefused
from cordee.systems.environments.node.hooks.oci import VARIABLE, asked_annotations, oci_hooks
from cordee.systems.environments.node.spank.carried import carried
from cordee.systems.environments.package_use import _listed
from cordee.systems.environments.venv_image.outside import _installed_in_place
from cordee.systems.explain.slow.views import STANDING, straggler_view
from cordee.systems.inference.batch.samples import BatchRequest, read_part, split
from cordee.systems.inference.model import _require_no_code
from cordee.systems.inference.weights import read_header
from cordee.systems.scan.moved.move import move_keys
from cordee.systems.scan.node.scanner import _Worker
from cordee.systems.score.exchange.prometheus import read_prometheus
from cordee.systems.services.backup import _from_file
from cordee.systems.services.kubernetes.gitops import write_service
from cordee.systems.sizing.architecture import read_architecture
from cordee.systems.trials.node.report import result_file
from cordee.systems.trials.node.task_list import read_tasks
from cordee.systems.vetting.fleet import mirror
from cordee.systems.vetting.node.checks.command import _said
from cordee.systems.vetting.node.checks.pair.lines import Stranger
from cordee.systems.vetting.protocol import classes
from cordee.systems.vetting.protocol.classes import NoClass
from cordee.telemetry.node.blocklog import decode_json
from cordee.wire import peers

DEEP = "[" * 100_000
REFUSALS = (CordeeError, EngineRefused, NoClass, Unreadable, ValueError, views.ViewError)


def file(folder: Path, name: str, text: str | bytes = DEEP) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def index(folder: Path) -> Any:
    header = DEEP.encode()
    head = struct.pack("<8sII", MAGIC, len(header), zlib.crc32(header))
    return read_index(file(folder, "dataset.index", head + header))


def names(folder: Path) -> Any:
    file(folder, NAMES)
    return list(members_of(SimpleNamespace(root=str(folder)), 0, ()))


def greeting(folder: Path) -> Any:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"[" * 990 + b"\n")  # longer ones are cut off before
        return peers._hear(here)


def listing(folder: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mirror, "call", lambda *_: (200, "OK", DEEP.encode()))
        patch.setenv("XDG_CACHE_HOME", str(folder))
        return mirror.fetch("http://collector.example", None)


def backup(folder: Path) -> Any:
    with tarfile.open(folder / "backup.tar", "w") as archive:
        archive.add(file(folder, "about"), "backup.json")
    (folder / "made").mkdir()
    return _from_file(folder / "backup.tar", SimpleNamespace(root=folder / "made"))


def repository(folder: Path) -> Any:
    file(folder, "services/space/other/deployment.yaml")
    loaded = SimpleNamespace(blueprint=SimpleNamespace(name="one"))
    place = SimpleNamespace(namespace="space", team=None)
    return write_service(folder, loaded, [], place, "https://git.example/repository")


def registry(_: Path) -> Any:
    answering = SimpleNamespace(_command=list, _flags=list, _name=str, _run=lambda *_, **__: DEEP.encode())
    answering._reference = SimpleNamespace(name="registry.example/image")
    return Skopeo.digest(answering)


def view(folder: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "reader_of", lambda _: lambda name: DEEP)
        return views.lay(SimpleNamespace(file=str(file(folder, "a", b"hsqs")), views=(), target=""))


def declared(folder: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classes, "_ask", lambda place: DEEP)
        return classes.declared(f"{file(folder, 'a.py')}:A", folder, (folder,))


def documents(_: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_documents, "_lines", lambda *_: [DEEP.encode()])
        return list(token_documents._of_lines(SimpleNamespace(), SimpleNamespace(name="a"), "text"))


REFUSING: dict[str, Callable[[Path], Any]] = {
    "index of a data set": index,
    "names beside shards": names,
    "list of URLs": lambda folder: read_list(file(folder, "a.jsonl")),
    "samples of JSON": lambda _: DECODERS["json"](DEEP.encode()),
    "samples of JSON lines": lambda _: DECODERS["jsonl"](DEEP.encode()),
    "record of telemetry": lambda _: decode_json(DEEP.encode()),
    "greeting of a peer": greeting,
    "answer of a collector": listing,
    "tasks of a run": lambda folder: read_tasks(file(folder, "tasks/tasks-0.jsonl").parents[1]),
    "counts of the site": lambda folder: FileCounts(str(file(folder, "counts"))).look(),
    "CDI in JSON": lambda folder: Specs(str(file(folder, "etc/cdi/a.json").parents[2])),
    "CDI in YAML": lambda folder: Specs(str(file(folder, "etc/cdi/a.yaml").parents[2])),
    "hooks": lambda folder: oci_hooks(SimpleNamespace(), {VARIABLE: str(file(folder, "a.json").parent)}),
    "environment of a job": lambda _: carried(base64.b64encode(zlib.compress(DEEP.encode())).decode()),
    "manifest of a registry": registry,
    "view of an image": view,
    "class of checks": declared,
    "documents of a token set": documents,
    "safetensors": lambda folder: read_header(file(folder, "a", struct.pack("<Q", len(DEEP)) + DEEP.encode())),
    "code of a model": lambda folder: _require_no_code(file(folder, "config.json").parent),
    "model": lambda folder: read_architecture(file(folder, "config.json")),
    "answers of Prometheus": lambda folder: read_prometheus([file(folder, "a", f'{{"status":{DEEP}\n' * 2)]),
    "backup of a service": backup,
    "repository of services": repository,
}


@pytest.mark.parametrize("name", REFUSING)
def test_a_document_that_is_nested_too_deeply_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(REFUSALS, match=r"nested|recursion|damaged|no backup|no manifest|no JSON"):
        REFUSING[name](tmp_path)


def news(folder: Path) -> Any:
    text = DEEP.encode()
    file(folder, "control/news", struct.pack("<III", 0xC0DE4E57, len(text), zlib.crc32(text)) + text)
    return NewsReader(folder).read()


def prompts(folder: Path) -> Any:
    path = file(folder, "a.jsonl", f'{{"prompt":{DEEP}\n')
    digest, parts = split(path, 1)
    (_, text, fault) = next(read_part(BatchRequest(str(path), digest, "", 1, 1, "cpu", parts), parts[0]))
    return text or not fault


def stranger(folder: Path) -> Any:
    here, there = socket.socketpair()
    with here, there:
        answering = Stranger(here)
        there.sendall(b"[" * 4_000 + b"\n")
        return answering.answer(b"token", "a", "b")


def requests(folder: Path) -> Any:
    run = RunFolder(folder)
    file(run.requests, "cancel-1.json")
    return LocalAllocation(run, SimpleNamespace()).requests(lambda: "ours")


def keys(folder: Path) -> Any:
    """Return whether a key was taken out of a job document and of a script that cannot be read."""
    key = f"hf_{'a1B2' * 9}"
    document = file(folder, "cordee.toml", f'run = "true"\nenv = {{ A = "{key}" }}\nx = {DEEP}\n')
    script = file(folder, "a.py", f"a = '{key}'\nx = {'-' * 100_000}1\n")
    return [moved for path in (document, script) for moved in move_keys(path, folder).files]


def profile(folder: Path) -> Any:
    file(folder, "cordee/clusters/site.toml", f"x = {DEEP}")
    return profile_runs({"XDG_CONFIG_HOME": str(folder)})


def trial(folder: Path) -> Any:
    result = result_file(folder / "result.json")
    return file(folder, "result.json") and result.values(["loss"])


def stragglers(folder: Path) -> Any:
    file(folder / "control", STANDING)
    return straggler_view(RunFolder(folder), RunState()).standing


def editable(folder: Path) -> Any:
    file(folder, "__editable___a_finder.py", f"MAPPING = {{{'-' * 100_000}1: 2}}\n")
    return list(_installed_in_place(folder, SimpleNamespace(site_folders=[folder])))


def worker(_: Path) -> Any:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(DEEP[:60_000].encode())
        return _Worker.answer(SimpleNamespace(socket=here))


def conda(_: Path) -> Any:
    reader = SimpleNamespace(read=lambda *_: DEEP.encode())
    return list(_listed(reader, SimpleNamespace(path="opt/conda-meta/one-1.json")))


PASSING: dict[str, Callable[[Path], Any]] = {
    "news of a run": news,
    "prompts": prompts,
    "hello of a stranger": stranger,
    "requests to a run": requests,
    "scripts with keys": keys,
    "profile": profile,
    "result of a trial": trial,
    "stragglers of a run": stragglers,
    "finder of an editable install": editable,
    "worker of a scan": worker,
    "package of conda": conda,
    "record of a packing": lambda _: known_record(DEEP.encode()),
    "facts of a token set": lambda _: known_about(DEEP.encode()),
    "Zarr": lambda folder: zarr_chunks([str(file(folder, "zarr.json").parent)]),
    "answer of an engine": lambda _: _answer_in(DEEP.encode()),
    "answer of a site's command": lambda _: _said(DEEP.encode()),
    "annotations of hooks": lambda folder: list(asked_annotations({VARIABLE: str(file(folder, "a.json").parent)})),
    "nodes with ssh": lambda folder: _told_by_nodes(file(folder, "a.json").parent),
    "classes of a Parquet file": lambda _: _names_of_classes(
        SimpleNamespace(metadata={b"huggingface": DEEP.encode()}), "a"
    ),
}


@pytest.mark.parametrize("name", PASSING)
def test_a_document_that_is_nested_too_deeply_counts_as_none(tmp_path: Path, name: str) -> None:
    assert not PASSING[name](tmp_path)
