"""From the names of files to samples: a key, and fields, as WebDataset readers split them."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Mapping, Set, Tuple

from cordee.core.errors import DataError
from cordee.systems.data.node.shards.entries import PackedEntry, Sample

# Distinct fields beyond which the first dot of a name is not taken for the end of its key.
_MANY_FIELDS = 32
_NO_FIELD = "bin"
_FEW = 20


# `(folder, [(name in it, entry)])`; folders are empty or end with a slash.
Folders = List[Tuple[bytes, List[Tuple[bytes, PackedEntry]]]]
_Group = Tuple[bytes, Tuple[str, ...], Tuple[PackedEntry, ...], bool]


def by_folder(entries: Iterable[PackedEntry]) -> Folders:
    """Return `(folder, [(name in it, entry)])`, all sorted; folders are `` or end with a slash.

    Raises:
        DataError: a name occurs twice.
    """
    found: Dict[bytes, List[Tuple[bytes, PackedEntry]]] = {}
    for entry in entries:
        name = entry.name
        cut = name.rfind(b"/") + 1
        folder = name[:cut]
        if folder in found:
            found[folder].append((name[cut:], entry))
        else:
            found[folder] = [(name[cut:], entry)]
    twice: List[bytes] = []
    for folder, files in found.items():
        files.sort()
        if len({name for name, _ in files}) < len(files):
            twice += [folder + a for (a, _), (b, _) in zip(files, files[1:]) if a == b]
    if twice:
        names = [name.decode("utf-8", "backslashreplace") for name in sorted(set(twice))]
        raise DataError(
            f"{len(names)} names occur more than once",
            given=", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" if len(names) > _FEW else ""),
            allowed="every sample under a key of its own",
            next="remove or rename them",
        )
    return sorted(found.items(), key=_first)


def _first(pair: Tuple[bytes, object]) -> bytes:
    return pair[0]


def choose_split(folders: Folders) -> str:
    """Return `first` where the first dots of the names lead to few fields, else `last`."""
    fields: Set[bytes] = set()
    for _, files in folders:
        fields.update([base.partition(b".")[2] if base[:1] != b"." else b"" for base, _ in files])
        if len(fields) > _MANY_FIELDS:
            return "last"
    return "first"


def samples(folders: Folders, at_first_dot: bool, class_of_folder: Mapping[bytes, int]) -> Iterator[Sample]:
    """Yield the samples of each folder, by key.

    Files of one folder whose names are equal up to the dot are one sample. What no reader of WebDataset would find under
    its own name (no dot, a leading dot, a line break, two endings that differ by case only) gets another one.
    """
    for folder, files in folders:
        label = class_of_folder.get(folder[: folder.find(b"/")]) if class_of_folder else None
        for key, fields, entries, renamed in _folder_groups(folder, files, at_first_dot):
            yield Sample(key, label, fields, entries, renamed)


def _folder_groups(folder: bytes, files: List[Tuple[bytes, PackedEntry]], at_first_dot: bool) -> Iterator[_Group]:
    plain: Dict[bytes, Tuple[Tuple[str, ...], Tuple[PackedEntry, ...]]] = {}
    odd: List[Tuple[bytes, PackedEntry]] = []
    broken = b"\n" in folder
    for base, entry in files:
        dot = base.find(b".") if at_first_dot else base.rfind(b".")
        stem = base[:dot]
        if dot <= 0 or dot == len(base) - 1 or broken or b"\n" in base or (not at_first_dot and b"." in stem):
            odd.append((base, entry))
            continue
        field = _KNOWN.get(base[dot + 1 :]) or _field(base[dot + 1 :])
        if stem not in plain:
            plain[stem] = ((field,), (entry,))
        elif field in plain[stem][0]:
            odd.append((base, entry))
        else:
            fields, entries = plain[stem]
            plain[stem] = ((*fields, field), (*entries, entry))
    made = [(folder + stem, fields, entries, False) for stem, (fields, entries) in plain.items()]
    if odd:
        made += _renamed(folder, odd, at_first_dot, set(plain))
        made.sort(key=lambda one: one[0])
    return iter(made)


def _renamed(
    folder: bytes, odd: List[Tuple[bytes, PackedEntry]], at_first_dot: bool, taken: Set[bytes]
) -> List[_Group]:
    """Return samples for files that cannot keep their names; those with the same stem stay together."""
    stems: Dict[bytes, Dict[str, PackedEntry]] = {}
    for base, entry in odd:
        stem, field = _stem_and_field(base, at_first_dot)
        free, number = stem, 1
        while free in taken or field in stems.get(free, ()):
            number += 1
            free = b"%s~%d" % (stem, number)
        stems.setdefault(free, {})[field] = entry
    tidy = folder.replace(b"\n", b"_")
    return [(tidy + stem, tuple(found), tuple(found.values()), True) for stem, found in stems.items()]


def key_and_field(name: bytes, at_first_dot: bool) -> Tuple[bytes, str]:
    """Return key and field of a file by itself, whatever its name is."""
    cut = name.rfind(b"/") + 1
    stem, field = _stem_and_field(name[cut:], at_first_dot)
    return name[:cut].replace(b"\n", b"_") + stem, field


def _stem_and_field(base: bytes, at_first_dot: bool) -> Tuple[bytes, str]:
    # What remains of a name with a leading or trailing dot is its stem; other dots of a stem become underlines.
    inner = base.strip(b".")
    dot = inner.find(b".") if at_first_dot else inner.rfind(b".")
    stem, ending = (inner[:dot], inner[dot + 1 :]) if dot > 0 else (inner, b"")
    stem = stem.replace(b".", b"_").replace(b"\n", b"_") or b"_"
    return stem, _field(ending) if ending and b"\n" not in ending else _NO_FIELD


_KNOWN: Dict[bytes, str] = {}


def beside_others(samples: List[Sample]) -> List[bytes]:
    """Return the names of files that are a sample of their own only because another one has the same name but for capitals."""
    return [
        sample.entries[0].name
        for sample in samples
        if sample.renamed and (tilde := sample.key.rfind(b"~")) > 0 and sample.key[tilde:] not in sample.entries[0].name
    ]


def _field(ending: bytes) -> str:
    """Return an ending as readers call the field: text in lower case."""
    found = _KNOWN.get(ending)
    if found is None:
        found = ending.decode("utf-8", "surrogateescape").lower()
        if len(_KNOWN) < 10_000:
            _KNOWN[ending] = found
    return found
