"""From a checkpoint to a folder that a server loads: exported, named, complete, scanned."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from cordee.core.documents.faults import document_error
from cordee.core.errors import CordeeError
from cordee.core.ports.models import MODEL_SCAN, WEIGHTS, ModelScan, WeightsExport
from cordee.core.registry import offered
from cordee.machine.foreign_files import parse_json
from cordee.systems.inference.weights import TABLE, read_table, rename

SERVING = "serving"
_CONFIG = "config.json"
# What a server reads beside the weights; programs and pickles are none of it.
_BESIDE = (
    _CONFIG, "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "chat_template.jinja",
    "preprocessor_config.json",
)  # fmt: skip


class ModelError(CordeeError):
    """A model cannot be served."""

    kind = "model"
    exit_code = 1


def prepare_model(source: str, runs: str | None, config: str | None, folder: Path, fits: bool = True) -> Path:
    """Return `folder/N`, a new folder with a model as a server loads it.

    Args:
        source: a run, a checkpoint, a folder of them, or a folder as Hugging Face's libraries write it.
        runs: where runs lie; None: as usual.
        config: the folder with config.json and the tokenizer; None: it is looked for.
        folder: of models.
        fits: False: who loads it compares it with its configuration, by `load_fitting`.

    Raises:
        ModelError: it lacks something, or does not fit its configuration.
        DocumentError: the scan says that it must not be loaded.
        CordeeError: there is no such model, or it cannot be read or written.
    """
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        partial = folder / f".new-{secrets.token_hex(4)}"
        try:
            _gather(source, runs, config, partial)
            _require_no_code(partial)
            _require_clean(partial)
            if fits:
                load_fitting(partial, "meta")
            return _placed(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        text = f"the model cannot be written: {error.strerror}"
        raise ModelError(text, given=error.filename or str(folder), next="make room, or free the name") from error


def _gather(source: str, runs: str | None, config: str | None, target: Path) -> None:
    """Write all that a server loads into a new folder."""
    given = Path(source)
    beside = Path(config) if config else None
    if (given / _CONFIG).is_file() and any(given.glob("*.safetensors")):
        target.mkdir(0o700)
        for file in (*given.glob("*.safetensors"), *given.glob("*.safetensors.index.json")):
            shutil.copyfile(file, target / file.name)
        beside = beside or given
    else:
        export: WeightsExport | None = offered(WEIGHTS)
        if export is None:
            raise ModelError("nothing here exports weights", given=source, next="give a folder with safetensors files")
        done = export(source, runs, target)
        target.chmod(0o700)
        beside = beside or _described(done.look_in)
    if not (beside / _CONFIG).is_file():
        raise ModelError(f"there is no {_CONFIG}", given=str(beside), next="name the folder that has it: --config DIR")
    if not any((beside / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")):
        raise ModelError("there is no tokenizer", given=str(beside), allowed="tokenizer.json", next="add it there")
    if (beside / TABLE).is_file():
        rename(target, read_table(beside / TABLE))
    for name in _BESIDE:
        if (beside / name).is_file():
            shutil.copyfile(beside / name, target / name)


def _described(look_in: tuple[Path, ...]) -> Path:
    """Return the folder that says what the model is: one of these, or `serving` in it."""
    places = [place for one in look_in for place in (one, one / SERVING)]
    for place in places:
        if (place / _CONFIG).is_file():
            return place
    raise ModelError(
        "nothing says what model these weights are",
        given=[str(place) for place in look_in],
        allowed=f"{_CONFIG} and tokenizer.json beside the checkpoint, or in a folder {SERVING} of the job",
        next="write them there, or name their folder: --config DIR",
    )


def _require_no_code(folder: Path) -> None:
    """Raise ModelError where a document of the model asks for code of its own, or is none."""
    for name in (_CONFIG, "tokenizer_config.json"):
        if not (folder / name).is_file():
            continue
        try:
            document = parse_json((folder / name).read_text())
        except ValueError as error:
            raise ModelError(f"{name} is no JSON: {error}", given=str(folder / name)) from error
        if not isinstance(document, dict) or document.get("auto_map"):
            text = f"{name} asks for code of the model's own, which no endpoint runs"
            raise ModelError(text, allowed="an architecture that the server has", next="leave auto_map out")


def _require_clean(folder: Path) -> None:
    scan: ModelScan | None = offered(MODEL_SCAN)
    if scan is None:
        raise ModelError("nobody can say whether the model may be loaded", next="install the scan")
    found = [one for one in scan(folder) if one.severity == "error"]
    if found:
        raise document_error(found)


def load_fitting(folder: Path, device: str) -> tuple[Any, Any]:
    """Return the model and the tokenizer of a folder; weights that its configuration does not ask for, or lacks, are refused: a
    server would fill up with noise.

    Args:
        device: as transformers names it; `meta`: no weights are read.

    Raises:
        ModelError: it cannot be loaded, or its weights are not those of its configuration.
    """
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
    except ImportError:
        what = "pip install 'transformers>=5' accelerate, where you deploy and where it runs"
        raise ModelError("transformers is needed to look at the model", next=what) from None
    here: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    told: dict[str, Any] = {}
    try:
        model, told = AutoModelForCausalLM.from_pretrained(
            folder, device_map=device, dtype="auto", output_loading_info=True, **here
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left", **here)
    except Exception as error:  # whatever a library of models raises is about the model
        text = str(error).strip().partition("\n")[0][:300]
        raise ModelError(
            f"the model cannot be loaded: {text}", next=f"correct {_CONFIG}, or give --config DIR"
        ) from error
    for key, what in (
        ("missing_keys", "it lacks"),
        ("unexpected_keys", "nothing takes"),
        ("mismatched_keys", "of another shape are"),
    ):
        names = sorted(str(name) for name in told.get(key) or ())
        if names:
            shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            text = f"the weights are not those of {_CONFIG}: {what} {shown}"
            raise ModelError(text, given=len(names), next=f"correct {_CONFIG}, or name the tensors in {TABLE}")
    return model, tokenizer


def _placed(partial: Path, folder: Path) -> Path:
    """Give a folder the next number: it is there when all of it is."""
    while True:
        number = max((int(one.name) for one in folder.iterdir() if one.name.isdigit()), default=0) + 1
        try:
            partial.rename(folder / str(number))
            return folder / str(number)
        except OSError:
            if not (folder / str(number)).exists():
                raise
