"""Counts the parameters of the model that `transformers` makes of a config.json, on the meta device. Runs in the user's Python.

`python sizes.py REQUEST` reads the config from the file that the JSON request names, and writes one JSON answer on its descriptor.
No code of a repository is run: a model_type that `transformers` itself does not have is refused.
"""

# It talks to whatever torch and transformers there are, which have no types here.
# mypy: ignore-errors

from __future__ import annotations

import json
import os
import resource
import sys

_SIZES = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
    "num_local_experts", "num_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "image_size", "patch_size",
)  # fmt: skip


def made(transformers, config):
    """Return the model that a config names, else the one that most make of its type."""
    named = getattr(transformers, config.architectures[0], None) if config.architectures else None
    if named is not None:
        return named._from_config(config)
    masked = type(config) in transformers.AutoModelForMaskedLM._model_mapping
    names = ("AutoModelForCausalLM", "AutoModelForImageTextToText")
    if config.get_text_config() is not config:  # of which the class for text takes the part for text alone
        names = names[::-1]
    if getattr(config, "is_encoder_decoder", False):
        names = ("AutoModelForSeq2SeqLM", "AutoModelForSpeechSeq2Seq")
    elif masked and not getattr(config, "is_decoder", False):
        names = ()
    for name in (*names, "AutoModel"):
        known = getattr(transformers, name)._model_mapping
        if type(config) in known:
            kinds = known[type(config)]
            return (kinds[0] if isinstance(kinds, tuple) else kinds)._from_config(config)
    raise LookupError(f"transformers {transformers.__version__} has no model of {config.model_type}")


def said(config, name):
    """Return a size that is one whole number for all layers; else None."""
    try:
        value = getattr(config, name, None)
    except Exception:  # of some types, a size that differs between layers raises an error of its own
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(document):
    """Return what JSON has no number for: configs write infinity as an object."""
    return float(document["__float__"]) if set(document) == {"__float__"} else document


def sizes(document):
    """Return what the model has, and the sizes that its config names."""
    import torch
    import transformers

    kind = document.pop("model_type", None)
    if kind not in transformers.CONFIG_MAPPING:
        own = "; code of its own (auto_map) is not run" if document.get("auto_map") else ""
        raise LookupError(f"transformers {transformers.__version__} has no {kind}{own}")
    for name in ("quantization_config", "auto_map", "torch_dtype", "dtype"):
        document.pop(name, None)
    config = transformers.CONFIG_MAPPING[kind].from_dict(document)
    with torch.device("meta"):
        model = made(transformers, config)
    text = config.get_text_config()
    found = {name: value for name in _SIZES if (value := said(text, name)) is not None}
    try:
        head, entry = model.get_output_embeddings(), model.get_input_embeddings()
    except (AttributeError, NotImplementedError):  # a model of more than one kind of input
        head = entry = None
    tied = getattr(head, "weight", None) is None or head.weight is getattr(entry, "weight", None)
    return {
        "parameters": sum(one.numel() for one in model.parameters()),
        "class": type(model).__name__,
        "sizes": found,
        "whole": text is config,
        "tied": tied,
    }


def main():
    """Answer the request in the first argument."""
    request = json.loads(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (request["memory_bytes"], request["memory_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [one for one in sys.path if os.path.abspath(one) != here]  # its files hide nobody's
    try:
        with open(request["config"]) as file:
            answer = {"sizes": sizes(json.load(file, object_hook=number))}
    except BaseException as error:
        text = str(error).strip().splitlines()
        answer = {"error": type(error).__name__, "text": text[0][:500] if text else "", "line": ""}
    os.write(request["answer_fd"], json.dumps(answer).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    main()
