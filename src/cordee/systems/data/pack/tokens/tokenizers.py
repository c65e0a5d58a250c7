"""From the text of a document to its tokens: bytes, a `tokenizer.json`, or a function of the user's own."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cordee.core.errors import DataError, UsageError

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

ALLOWED = "bytes, FILE.json of the library tokenizers, FILE.json#TOKEN where TOKEN ends a document, or MODULE:FUNCTION"
_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]")
# As Megatron-LM chooses the type of tokens.
_LARGEST_UINT16_VOCABULARY = 65_500


@dataclass(frozen=True)
class Tokenizer:
    """How text becomes tokens.

    Attributes:
        name: as it was given.
        identity: changes when its tokens may.
        encode: bytes of a document into whole numbers, without the end of the document.
        vocabulary: how many different tokens there are; None: not known.
        end: the token after every document; None: none.
    """

    name: str
    identity: str
    encode: Callable[[bytes], Array]
    vocabulary: int | None
    end: int | None

    @property
    def dtype(self) -> str:
        """The type of a token in the file, as NumPy writes it."""
        return "<u2" if self.vocabulary is not None and self.vocabulary < _LARGEST_UINT16_VOCABULARY else "<i4"


def open_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer of that name.

    Args:
        name: see ALLOWED. A function takes a document's text and returns its tokens; its attributes `vocabulary` (a
            number of tokens) and `end_of_document` (the token after every document) are taken where it has them.

    Raises:
        UsageError: there is none. DataError: it cannot be loaded.
    """
    if name in ("", "bytes"):
        return Tokenizer("bytes", "bytes", _bytes, 257, 256)
    path = name.partition("#")[0]
    if path.endswith(".json"):
        return _of_file(name, path, name.partition("#")[2])
    if ":" in name:
        return _of_function(name)
    raise UsageError("there is no such tokenizer", given=name, allowed=ALLOWED)


def _bytes(data: bytes) -> Array:
    import numpy

    return numpy.frombuffer(data, numpy.uint8)


def _of_file(name: str, path: str, end: str) -> Tokenizer:
    try:
        from tokenizers import Tokenizer as Loaded  # type: ignore[import-not-found]
    except ImportError:
        raise DataError(
            "a tokenizer.json needs the library tokenizers, which is not installed here",
            given=name,
            next="pip install tokenizers, or --tokenizer MODULE:FUNCTION of your own",
        ) from None
    try:
        with open(path, "rb") as file:
            text = file.read()
        loaded = Loaded.from_str(text.decode())
    except OSError as error:
        raise DataError(f"the tokenizer cannot be read: {error.strerror}", given=path) from None
    except Exception as error:  # the library raises Exception itself
        raise DataError(f"this is no tokenizer.json: {error}", given=path) from None
    ends = [loaded.token_to_id(token) for token in ([end] if end else _ENDS)]
    found = next((token for token in ends if token is not None), None)
    if found is None:
        raise UsageError(
            "the tokenizer has no such token for the end of a document",
            given=end or ", ".join(_ENDS),
            allowed="a token of its vocabulary",
            next="name it after a #: --tokenizer tokenizer.json#TOKEN",
        )

    def encode(data: bytes) -> Array:
        return _numbers(loaded.encode(data.decode(), add_special_tokens=False).ids, name)

    identity = f"{hashlib.sha256(text).hexdigest()[:16]}#{found}"
    return Tokenizer(name, identity, encode, loaded.get_vocab_size(), found)


def _of_function(name: str) -> Tokenizer:
    module, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        function: Any = import_module(module)
        for part in attribute.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"the tokenizer cannot be loaded: {error}", given=name, allowed=ALLOWED) from None
    finally:
        sys.path.remove(os.getcwd())
    if not callable(function):
        raise UsageError("the tokenizer is no function", given=name, allowed=ALLOWED)

    def encode(data: bytes) -> Array:
        return _numbers(function(data.decode()), name)

    vocabulary, end = getattr(function, "vocabulary", None), getattr(function, "end_of_document", None)
    return Tokenizer(name, f"{name} {vocabulary} {end}", encode, vocabulary, end)


def _numbers(tokens: Sequence[int], name: str) -> Array:
    import numpy

    found = numpy.asarray(tokens)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise DataError(
            "the tokenizer did not return a list of whole numbers",
            given=f"{name}: {found.dtype}, shape {found.shape}",
        )
    return found if found.size else found.astype(numpy.int64)
