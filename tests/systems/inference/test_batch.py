"""A batch: each line of a file is answered once, whatever failed in between."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.systems.inference.conftest import EXAMPLE

from cordee.core.errors import CordeeError, UsageError
from cordee.faces.cli import main
from cordee.systems.inference.batch import task
from cordee.systems.inference.batch.run import begin
from cordee.systems.inference.batch.samples import (
    BatchRequest,
    collect,
    missing,
    part_path,
    read_part,
    read_spec,
    split,
    write_spec,
)


def spec_of(path: Path, tasks: int) -> BatchRequest:
    digest, parts = split(path, tasks)
    return BatchRequest(str(path), digest, "model", 4, 2, "cpu", parts)


@pytest.mark.parametrize("tasks", [1, 3, 7, 100])
def test_every_line_is_in_one_part_and_empty_lines_are_in_none(tmp_path, tasks):
    path = tmp_path / "lines.txt"
    path.write_text("a\n\nb\n   \nc\r\nd\ne\nf\ng")
    spec = spec_of(path, tasks)
    found = [one for part in spec.parts for one in read_part(spec, part)]
    assert found == [(number, letter, "") for number, letter in enumerate("abcdefg")]
    assert len(spec.parts) == min(tasks, 7)


def test_a_line_that_is_no_sample_has_a_fault_and_the_others_go_on(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"prompt": "a"}\nno json\n{"text": "b"}\n{"prompt": 3}\n[]\n{"prompt": "c"}\n')
    spec = spec_of(path, 1)
    found = list(read_part(spec, spec.parts[0]))
    assert [text for _, text, fault in found if not fault] == ["a", "c"]
    assert [number for number, _, fault in found if fault] == [1, 2, 3, 4]


def test_answers_that_are_not_each_there_once_are_no_output(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("a\nb\nc\nd\n")
    spec = spec_of(path, 2)
    (tmp_path / "parts").mkdir()
    write_spec(tmp_path, spec)
    assert read_spec(tmp_path) == spec
    part_path(tmp_path, 0).write_text('{"sample": 0, "text": "x"}\n{"sample": 1, "text": "y"}\n')
    assert missing(tmp_path, spec) == [1]
    for wrong in ('{"sample": 2, "text": "x"}\n', '{"sample": 2, "text": "x"}\n{"sample": 2, "text": "x"}\n'):
        part_path(tmp_path, 1).write_text(wrong)
        with pytest.raises(CordeeError, match="each once"):
            collect(tmp_path, spec)
        assert not (tmp_path / "output.jsonl").exists()
    part_path(tmp_path, 1).write_text('{"sample": 2, "text": "x"}\n{"sample": 3, "fault": "no"}\n')
    assert collect(tmp_path, spec) == {"samples": 4, "faults": 1}


def test_a_folder_of_another_batch_or_of_something_else_is_left_alone(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("a\nb\n")
    with pytest.raises(UsageError, match="no sample"):
        split(Path(os.devnull), 3) if Path(os.devnull).is_file() else split(empty(tmp_path), 3)
    folder = tmp_path / "to"
    folder.mkdir()
    write_spec(folder, spec_of(path, 1)._replace(tokens=9))
    with pytest.raises(UsageError, match="other samples"):
        begin(folder, path, "m", None, 1, 4, 1, "cpu")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match="something else"):
        begin(other, path, "m", None, 1, 4, 1, "cpu")


def empty(folder: Path) -> Path:
    path = folder / "empty.txt"
    path.write_text("\n\n")
    return path


@pytest.mark.usefixtures("real")
def test_a_batch_gives_the_answers_of_a_plain_loop_each_once_and_goes_on_with_what_is_missing(
    checkpoint, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    prompts = ["def f(", "class A:", "import os", "x", "for i in range(", "y" * 70, "", "return"]
    samples = Path("samples.jsonl")
    samples.write_text("".join(json.dumps({"prompt": one}) + "\n" for one in prompts))
    folder = tmp_path / "to"
    begin(folder, samples, str(checkpoint), str(EXAMPLE / "serving"), 2, 12, 3, "cpu")
    monkeypatch.setattr(sys, "argv", ["task", str(folder), "0"])
    assert task.main() == 0
    first = part_path(folder, 0).stat().st_mtime_ns
    words = ["service", "batch", str(samples), "--model", str(checkpoint), "--to", "to", "--tokens", "12", "--json"]

    def run() -> tuple[int, dict]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(words)
        return int(ended.value.code or 0), json.loads(capsys.readouterr().out)

    code, done = run()
    assert (code, done["samples"], done["faults"], done["tasks"]) == (1, 8, 2, 2)
    assert part_path(folder, 0).stat().st_mtime_ns == first
    lines = [json.loads(line) for line in (folder / "output.jsonl").read_text().splitlines()]
    assert [one["sample"] for one in lines] == list(range(8))
    assert "70 tokens" in lines[5]["fault"]
    assert "empty" in lines[6]["fault"]
    model = task.BatchModel(str(folder / "model" / "1"), 12, "cpu")
    for one in lines:
        if "text" in one:
            assert one["text"] == model.answers([prompts[one["sample"]]])[0]
    kept = (folder / "output.jsonl").read_bytes()
    part_path(folder, 0).write_text("")  # what is there is not made again: an empty part is told as such
    code, told = run()
    assert (code, "each once" in told["error"]["text"]) == (1, True)
    assert (folder / "output.jsonl").read_bytes() == kept


@pytest.mark.usefixtures("real")
def test_a_model_that_no_task_can_load_is_told_once_and_the_mended_one_is_taken_in_its_place(
    checkpoint, tmp_path, capsys
):
    samples = tmp_path / "samples.txt"
    samples.write_text("a\nb\n")
    serving = tmp_path / "serving"
    shutil.copytree(EXAMPLE / "serving", serving)
    config = json.loads((serving / "config.json").read_text())
    (serving / "config.json").write_text(json.dumps({**config, "n_layer": config["n_layer"] + 1}))
    words = ["service", "batch", str(samples), "--model", str(checkpoint), "--config", str(serving), "--tasks", "1"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--to", str(tmp_path / "to")])
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert "the weights are not those of config.json: it lacks" in said
    shutil.copy(EXAMPLE / "serving" / "config.json", serving)
    spec = begin(tmp_path / "to", samples, str(checkpoint), str(serving), 1, 64, 16, "cpu")
    assert spec.model.endswith("model/2")
    assert missing(tmp_path / "to", spec) == [0]
