"""`python -m cordee.systems.inference.batch.task FOLDER N`: task N of a batch answers its samples."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from cordee.runs.folder import write_atomically
from cordee.systems.inference.batch.samples import REFUSED, BatchRequest, part_path, read_part, read_spec
from cordee.systems.inference.model import ModelError, load_fitting


class BatchModel:
    """A model and its tokenizer, which answers samples greedily.

    Args:
        folder: with the model.
        tokens: the most of one answer.
        device: `cpu`, `cuda` or `auto`.

    Raises:
        ModelError: it cannot be loaded, or its weights are not those of its configuration.
    """

    def __init__(self, folder: str, tokens: int, device: str) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        import torch

        self._torch, self._tokens = torch, tokens
        self._device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        model, self._tokenizer = load_fitting(Path(folder), self._device)
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        self._model = model.eval()
        self._most = getattr(model.config, "max_position_embeddings", None) or sys.maxsize

    def answers(self, prompts: list[str]) -> list[str]:
        """Return the answer to each prompt.

        Raises:
            ValueError: one is too long for the model, or empty.
        """
        coded = self._tokenizer(prompts, return_tensors="pt", padding=True).to(self._device)
        length = coded["input_ids"].shape[1]
        if not all(coded["attention_mask"].sum(1)):
            raise ValueError("the prompt is empty")
        if length + self._tokens > self._most:
            raise ValueError(
                f"the prompt has {length} tokens; with {self._tokens} new ones the model takes {self._most}"
            )
        with self._torch.inference_mode():
            made = self._model.generate(
                **coded, max_new_tokens=self._tokens, do_sample=False, pad_token_id=self._tokenizer.pad_token_id
            )
        found: list[str] = self._tokenizer.batch_decode(made[:, length:], skip_special_tokens=True)
        return found


def answer_all(model: BatchModel, spec: BatchRequest, index: int) -> list[dict[str, Any]]:
    """Return the answers of a part, in its order: `sample` and `text`, or `fault` where there is none."""
    found: dict[int, dict[str, Any]] = {}
    asked: list[tuple[int, str]] = []
    for number, prompt, fault in read_part(spec, spec.parts[index]):
        if fault:
            found[number] = {"sample": number, "fault": fault}
        else:
            asked.append((number, prompt))
    asked.sort(key=lambda one: len(one[1]))  # those of one length go together: little is padded
    for at in range(0, len(asked), spec.at_once):
        group = asked[at : at + spec.at_once]
        try:
            texts = model.answers([prompt for _, prompt in group])
            found.update(
                (number, {"sample": number, "text": text}) for (number, _), text in zip(group, texts, strict=True)
            )
        except (ValueError, IndexError, RuntimeError):  # one of them: each for itself
            for number, prompt in group:
                try:
                    found[number] = {"sample": number, "text": model.answers([prompt])[0]}
                except (ValueError, IndexError, RuntimeError) as error:
                    found[number] = {"sample": number, "fault": str(error).partition("\n")[0][:300]}
    return [found[number] for number in sorted(found)]


def main() -> int:
    """Answer the samples of the task that the arguments name, unless that was done."""
    folder, index = Path(sys.argv[1]), int(sys.argv[2])
    path = part_path(folder, index)
    if path.exists():
        return 0
    if (folder / REFUSED).exists():  # another task has loaded it in vain
        return 1
    spec = read_spec(folder)
    try:
        model = BatchModel(spec.model, spec.tokens, spec.device)
    except ModelError as error:
        write_atomically(folder / REFUSED, json.dumps({"text": error.text, "given": error.given, "next": error.next}))
        raise
    answers = answer_all(model, spec, index)
    write_atomically(path, "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in answers))
    print(f"{len(answers)} samples, from {spec.parts[index].first} on")
    return 0


if __name__ == "__main__":
    sys.exit(main())
