"""Lists and documents as spreadsheets, editors of Windows and PowerShell write them: each reader gives the same of all, or refuses."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordee.backends.network.sources import read_network
from cordee.backends.slurm.sbatch.convert import read_text as read_script
from cordee.core.documents.config_paths import profile_runs
from cordee.core.documents.files import read_toml
from cordee.core.documents.texts import lines_of, text_of
from cordee.core.documents.yaml_lines import read_yaml
from cordee.core.errors import CordeeError
from cordee.core.web.tokens import read_tokens
from cordee.job.load import load_job
from cordee.systems.data.fetch.listing import read_list
from cordee.systems.data.pack.origins.csv_table import TableOrigin
from cordee.systems.inference.batch.samples import BatchRequest, read_part, split
from cordee.systems.scan.packages.names import known_names
from cordee.systems.scan.packages.project import asked_file
from cordee.systems.score.exchange.files import read_table
from cordee.systems.sizing.architecture import read_architecture
from cordee.systems.trials.formats import TaskDefaults, read_file
from cordee.systems.vetting.protocol.site import read_baseline


def table(path: Path) -> Any:
    for name in ("é.jpg", "b.jpg"):
        (path.parent / name).write_bytes(b"picture")
    found = TableOrigin(str(path)).listing()
    return found.classes, [sample[:3] for sample in found.samples]


def prompts(path: Path) -> Any:
    digest, parts = split(path, 2)
    spec = BatchRequest(str(path), digest, "", 1, 1, "cpu", parts)
    return [sample for part in parts for sample in read_part(spec, part)]


def runs(path: Path) -> Any:
    clusters = path.parent / "cordee" / "clusters"
    clusters.mkdir(parents=True, exist_ok=True)
    os.replace(path, clusters / path.name)
    return profile_runs({"XDG_CONFIG_HOME": str(path.parent)})


def tokens(path: Path) -> Any:
    path.chmod(0o600)
    return read_tokens(path)


def tasks(path: Path) -> Any:
    return [(task.line, task.values["line"]) for task in read_file(path, "auto", TaskDefaults())]


READERS: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    "job": ("cordee.toml", 'name = "a"\nrun = "true"\nenv = {X = "é"}\n', lambda path: load_job(path).job.env),
    "environment": ("env.toml", 'image = "é"\n', lambda path: read_toml(path)[1]),
    "protocol": ("a.yaml", "# é\nname: é\n", lambda path: read_yaml(path).values),
    "baseline": ("a.json", '{"é":\n {"value": 2, "n": 3}}', read_baseline),
    "model": (
        "config.json",
        '{"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,\n'
        '"num_attention_heads": 1, "vocab_size": 9, "remark": "é"}',
        read_architecture,
    ),
    "tasks": ("tasks.txt", "python é.py\n\npython b.py\n", tasks),
    "disbatch": ("tasks.txt", "#DISBATCH PREFIX é \npython b.py\n", tasks),
    "array": ("a.sh", "#!/bin/bash\n#SBATCH --array=1-2\necho é\n", tasks),
    "batch script": ("a.sh", "#!/bin/bash\n#SBATCH -N 2\necho é\n", read_script),
    "URLs": ("a.txt", "https://a.example/é\nhttps://a.example/b\n", read_list),
    "table of URLs": ("a.csv", "url,name\nhttps://a.example/a,é.jpg\nhttps://a.example/b,b.jpg\n", read_list),
    "JSON lines of URLs": ("a.jsonl", '{"url": "https://a.example/é"}\n{"url": "https://a.example/b"}\n', read_list),
    "table of samples": ("a.csv", "path,label\né.jpg,chat\nb.jpg,é\n", table),
    "tab-separated table": ("a.tsv", "label\tpath\nchat\té.jpg\né\tb.jpg\n", table),
    "requirements": (
        "requirements.txt",
        "# é\nnumpy==2.0\ntorch==2.6\n",
        lambda path: asked_file(str(path), known_names()),
    ),
    "names of packages": ("names.txt", "own-package # é\nother\n", lambda path: known_names(str(path))),
    "counters": (
        "a.csv",
        "gpu,é\n0,1\n1,2\n",
        lambda path: [(names, list(rows)) for names, rows in [read_table(path)]],
    ),
    "network": ("topology.conf", "SwitchName=s0 Nodes=n[1-2] # é\nSwitchName=s1 Nodes=n[3-4]\n", read_network),
    "prompts": ("prompts.txt", "é?\n\nb\n", prompts),
    "JSON lines of prompts": ("prompts.jsonl", '{"prompt": "é?"}\n{"prompt": "b"}\n', prompts),
    "profile": ("site.toml", 'runs = "/é"\n', runs),
    "tokens": ("tokens", f"anna read {'a' * 24} # é\nben write {'b' * 24}\n", tokens),
}
ENCODED = {
    "plain": lambda text: text.encode(),
    "mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "CRLF": lambda text: text.replace("\n", "\r\n").encode(),
    "UTF-16": lambda text: codecs.BOM_UTF16_LE + text.replace("\n", "\r\n").encode("utf-16-le"),
    "UTF-16 BE": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
}


def read(name: str, folder: Path, data: bytes) -> Any:
    file, _, reader = READERS[name]
    folder.mkdir(exist_ok=True)
    (folder / file).write_bytes(data)
    return reader(folder / file)


BY_LINES_OF_BYTES = {"prompts", "JSON lines of prompts"}


@pytest.mark.parametrize("encoding", [name for name in ENCODED if name != "plain"])
@pytest.mark.parametrize("name", READERS)
def test_what_is_clear_is_read(tmp_path: Path, name: str, encoding: str) -> None:
    text = READERS[name][1]
    expected = read(name, tmp_path, ENCODED["plain"](text))
    assert expected
    if encoding.startswith("UTF-16") and name in BY_LINES_OF_BYTES:
        with pytest.raises(CordeeError, match="in UTF-16"):
            read(name, tmp_path, ENCODED[encoding](text))
    else:
        assert read(name, tmp_path, ENCODED[encoding](text)) == expected


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("name", [name for name in READERS if name not in ("profile", "requirements")])
def test_what_is_not_clear_is_refused(tmp_path: Path, name: str, encoding: str) -> None:
    with pytest.raises(CordeeError) as caught:
        read(name, tmp_path, READERS[name][1].encode(encoding))
    assert caught.value.file == str(tmp_path / READERS[name][0])
    assert caught.value.line
    assert caught.value.allowed
    assert caught.value.next


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-le", "utf-32"])
def test_requirements_that_are_not_clear_are_told_of(tmp_path: Path, encoding: str) -> None:
    (sight,) = read("requirements", tmp_path, READERS["requirements"][1].encode(encoding)).sights
    assert (sight.rule, sight.severity) == ("package-unreadable", "unknown")
    assert "save it as UTF-8" in sight.text


def test_an_error_names_the_line_and_the_byte() -> None:
    for data, line, given in [
        (b"a\nb\n\xe9\n", 3, "\\xe9"),
        (b"a\n\0", 2, "\\0"),
        (codecs.BOM_UTF16_LE + "a\n\u0a0ab".encode("utf-16-le") + b"\0", 2, "\\x00"),
    ]:
        with pytest.raises(CordeeError) as caught:
            text_of(data, "list")
        assert (caught.value.file, caught.value.line, caught.value.given) == ("list", line, given)


def test_lists_that_were_joined_have_no_marks_in_them(tmp_path: Path) -> None:
    data = codecs.BOM_UTF8 + b"a\n"
    (tmp_path / "list").write_bytes(data * 2)
    assert [line for _, line in tasks(tmp_path / "list")] == ["a", "a"]
    assert list(lines_of(tmp_path / "list")) == ["a\n", "a\n"]


def test_only_line_ends_end_a_line(tmp_path: Path) -> None:
    inside = "a\x0b\x0c\x1c\x85\u2028b"
    (tmp_path / f"{inside}.jpg").write_bytes(b"picture")
    (tmp_path / "a.csv").write_text(f'path,label,remark\n{inside}.jpg,{inside},"two\nlines"\n')
    listing = TableOrigin(str(tmp_path / "a.csv")).listing()
    assert (listing.classes, len(listing.samples)) == ([inside], 1)
    (tmp_path / "tasks").write_text("a\rb\n")
    with pytest.raises(CordeeError, match="carriage return"):
        tasks(tmp_path / "tasks")


def test_a_table_of_endless_cells_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"path,label\na,{'b' * 200_000}\n")
    with pytest.raises(CordeeError, match="cannot be read: field larger"):
        TableOrigin(str(tmp_path / "a.csv")).listing()
