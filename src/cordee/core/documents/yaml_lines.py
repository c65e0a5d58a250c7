"""Reads YAML into plain values and remembers the line of every key; refuses what a document has no use for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cordee.core.documents.faults import fault_error
from cordee.core.documents.files import read_text
from cordee.core.documents.toml_lines import Keys
from cordee.core.errors import DocumentError

MOST_LEVELS = 32
MOST_VALUES = 500_000
_TAG = "tag:yaml.org,2002:"
_TEXT, _MERGE = f"{_TAG}str", f"{_TAG}merge"
_PLAIN = {_TEXT, f"{_TAG}timestamp"}  # a date is a text here
_SAFE = {f"{_TAG}int", f"{_TAG}float", f"{_TAG}bool", f"{_TAG}null"}
_COLLECTIONS = {None, "!", f"{_TAG}map", f"{_TAG}seq"}


@dataclass
class YamlDocument:
    """A YAML file.

    Attributes:
        path, text: as given.
        values: dict, list, text, number, boolean, None.
        lines: of each path of keys.
        written: numbers and booleans as they were written, by path: `1.10` and `yes` where a text is meant.
    """

    path: Path
    text: str
    values: Any
    lines: dict[Keys, int] = field(default_factory=dict)
    written: dict[Keys, str] = field(default_factory=dict)

    def line(self, path: Keys) -> int | None:
        """Return the line (from 1) where `path` is given, else that of its nearest parent; None when there is none."""
        for count in range(len(path), -1, -1):
            if path[:count] in self.lines:
                return self.lines[path[:count]]
        return None

    def as_texts(self, path: Keys, value: Any) -> Any:
        """Return the value at `path` with numbers and booleans in it, or in its elements, as they were written."""
        if isinstance(value, list):
            return [self.written.get((*path, index), entry) for index, entry in enumerate(value)]
        if isinstance(value, dict):
            return {key: self.written.get((*path, key), entry) for key, entry in value.items()}
        return self.written.get(path, value)


def read_yaml(path: Path, clean: Callable[[str], str] | None = None) -> YamlDocument:
    """Return a YAML file's text, values and lines.

    Keys are texts as they are written, so that `ON: 1` has the key ON. Aliases and `<<` are followed.

    Args:
        path: of the file.
        clean: takes off what is no YAML, and no line.

    Raises:
        DocumentError: it is missing, unreadable, larger than 1 MiB, not UTF-8 or not YAML; it has a key twice, more
            than one document, a tag that makes objects, more than 32 levels, or aliases that unfold to more than
            500,000 values.
    """
    text = read_text(path, "a YAML file")
    try:
        reading = _Reading(path, clean(text) if clean else text)
        return YamlDocument(path, text, reading.document(), reading.lines, reading.written)
    except yaml.YAMLError as error:
        raise _bad_yaml(path, text, error)


@dataclass
class _Open:
    """A mapping or sequence whose end has not come yet."""

    path: Keys
    value: dict[str, Any] | list[Any]
    anchor: str | None
    line: int
    begun: int
    key: str | None = None
    merging: bool = False
    own: set[str] = field(default_factory=set)


class _Reading:
    """One pass over the events of a text, without recursion."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._text = path, text
        self.lines: dict[Keys, int] = {}
        self.written: dict[Keys, str] = {}
        self._loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self._resolver = yaml.SafeLoader("")
        self._resolve: Callable[[type, str, tuple[bool, bool]], str] = self._resolver.resolve
        self._anchors: dict[str, tuple[Any, int]] = {}  # by name: the value and how many values are in it
        self._open: list[_Open] = []
        self._count = 0
        self._root: Any = None

    def document(self) -> Any:
        documents = 0
        for event in self._events():
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._fault("holds more than one document", line, "---", "one document", "split the file")
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event, line)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(str(event.anchor), line)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._begin(event, line)
            elif isinstance(event, yaml.CollectionEndEvent):
                done = self._open.pop()
                self._place(done.value, done.line, done.anchor, inside=self._count - done.begun)
        return self._root

    def _events(self) -> Iterator[Any]:
        yield from yaml.parse(self._text, Loader=self._loader)

    def _begin(self, event: Any, line: int) -> None:
        if event.tag not in _COLLECTIONS:
            raise self._tag_fault(event.tag, line)
        if self._expects_key():
            raise self._fault("a key is not a text", line, "a table or a list", "a name", "write `name: value`")
        if len(self._open) >= MOST_LEVELS:
            allowed = f"at most {MOST_LEVELS} levels"
            raise self._fault("is nested too deeply", line, f"{MOST_LEVELS + 1} levels", allowed, "flatten it")
        value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._open.append(_Open(self._path_of_next(line), value, event.anchor, line, self._count))

    def _scalar(self, event: Any, line: int) -> None:
        tag = event.tag if event.tag not in (None, "!") else None
        if tag is None:
            tag = self._resolve(yaml.ScalarNode, event.value, event.implicit)
        if self._expects_key():
            self._key(event.value, tag == _MERGE, line)
            return
        if tag in _PLAIN or tag == _MERGE:
            value = event.value
        elif tag in _SAFE:
            value = self._construct(tag, event.value, line)
        else:
            raise self._tag_fault(tag, line)
        path = self._path_of_next(line)
        if not isinstance(value, str) and value is not None:
            self.written[path] = event.value
        self._place(value, line, event.anchor)

    def _construct(self, tag: str, text: str, line: int) -> Any:
        try:
            return self._resolver.construct_object(yaml.ScalarNode(tag, text))
        except (ValueError, OverflowError, KeyError, IndexError):
            kind = tag.removeprefix(_TAG)
            raise self._fault(
                f"is not a valid {kind}", line, text[:200], f"a YAML {kind}", "put it in quotes"
            ) from None

    def _alias(self, anchor: str, line: int) -> None:
        if anchor not in self._anchors:
            what = f"give `&{anchor}` above it, and not around it"
            raise self._fault(
                f"the alias *{anchor} stands for nothing", line, f"*{anchor}", "a name given with &", what
            )
        value, inside = self._anchors[anchor]
        if self._expects_key():
            raise self._fault("an alias cannot be a key", line, f"*{anchor}", "a name", "write the key out")
        self._path_of_next(line)
        self._place(value, line, unfolded=inside)

    def _key(self, key: str, merging: bool, line: int) -> None:
        table = self._open[-1]
        if not merging and key in table.own:
            first = self.lines[(*table.path, key)]
            text = f"{key} is given twice; the first is in line {first}"
            raise self._fault(text, line, key, "each key once", f"remove one {key}")
        table.key, table.merging = key, merging
        if not merging:
            table.own.add(key)
            self.lines[(*table.path, key)] = line

    def _path_of_next(self, line: int) -> Keys:
        """Return the path of the value that comes now, and note the line of an element of a list."""
        if not self._open:
            self.lines.setdefault((), line)
            return ()
        around = self._open[-1]
        if isinstance(around.value, list):
            path = (*around.path, len(around.value))
            self.lines[path] = line
            return path
        return (*around.path, str(around.key))

    def _place(self, value: Any, line: int, anchor: str | None = None, inside: int = 0, unfolded: int = 0) -> None:
        """Put a complete value where it belongs; `inside` values are in it, `unfolded` ones come with it by an alias."""
        if anchor is not None:
            self._anchors[anchor] = (value, inside)
        self._count += 1 + unfolded
        if self._count > MOST_VALUES:
            allowed = f"at most {MOST_VALUES} values"
            raise self._fault("its aliases unfold to too much", line, "aliases of aliases", allowed, "write it out")
        if not self._open:
            self._root = value
            return
        around = self._open[-1]
        if isinstance(around.value, list):
            around.value.append(value)
            return
        if around.merging:
            self._merge(around, value, line)
        else:
            around.value[str(around.key)] = value
        around.key, around.merging = None, False

    def _merge(self, table: _Open, value: Any, line: int) -> None:
        parts = value if isinstance(value, list) else [value]
        if not all(isinstance(part, dict) for part in parts):
            raise self._fault("<< takes a table", line, "<<", "an alias of a table, or a list of them", "remove <<")
        assert isinstance(table.value, dict)
        for part in parts:
            for key, inner in part.items():
                table.value.setdefault(key, inner)

    def _expects_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def _tag_fault(self, tag: str, line: int) -> DocumentError:
        shown = tag.replace(_TAG, "!!")[:200]
        return self._fault("holds a tag", line, shown, "plain values, without tags", f"remove {shown}")

    def _fault(self, text: str, line: int, given: str, allowed: str, what: str) -> DocumentError:
        file = str(self._path)
        return fault_error(text, "bad-yaml", file=file, line=line, given=given, allowed=allowed, next=what)


def _bad_yaml(path: Path, text: str, error: yaml.YAMLError) -> DocumentError:
    lines = text.split("\n")
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line, reason = (mark.line + 1 if mark else 1), error.problem or error.context or "it cannot be read"
    else:
        at = getattr(error, "position", 0) or 0
        line, reason = text.count("\n", 0, at) + 1, str(getattr(error, "reason", error))
    given = lines[min(line, len(lines)) - 1].strip()[:200]
    what = "correct this line; a text with `: ` or ` #` in it needs quotes, and tabs cannot indent"
    return fault_error(
        f"is not valid YAML: {reason}", "bad-yaml", file=str(path), line=line, given=given, allowed="YAML", next=what
    )
