"""What holds for any EDF: expansion gives back what was escaped, merging is what a plain model says, text and document agree."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordee.core.documents.toml_text import quoted
from cordee.core.errors import DocumentError
from cordee.systems.environments.edf import resolve
from cordee.systems.environments.edf.expand import ExpansionError, expand
from cordee.systems.environments.edf.fields import KEYS
from cordee.systems.environments.edf.mounts import MountError, mount_text, parse_mount
from cordee.systems.environments.edf.render import edf_text
from cordee.systems.environments.node.document import ContainerMount, Environment, environment_of

NAMES = st.sampled_from(["A", "B", "HOME", "x_1", "LONG_NAME"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
PATHS = st.lists(st.text(st.sampled_from("ab$:\\ {}-.é\n"), min_size=1, max_size=6), min_size=1, max_size=3).map(
    lambda parts: "/" + "/".join(part for part in parts if part not in (".", ".."))
)
FLAGS = st.lists(st.sampled_from(["ro", "private", "nosuid"]), unique=True, max_size=2).map(tuple)
VALUES = {"image": st.sampled_from(["a", "b", "/c.sqsh"]), "writable": st.booleans(), "entrypoint": st.booleans()}
FILES = st.fixed_dictionaries(
    {},
    optional={
        **VALUES,
        "env": st.dictionaries(NAMES, st.sampled_from(["1", "2", ""]), max_size=3),
        "annotations": st.dictionaries(st.sampled_from(["a.b", "a.c", "d"]), st.sampled_from(["x", "y"]), max_size=3),
        "mounts": st.lists(st.sampled_from(["/m", "/n", "/o"]), max_size=3),
        "devices": st.lists(st.sampled_from(["d", "e"]), max_size=3),
    },
)


@given(TEXTS, st.dictionaries(NAMES, TEXTS))
def test_a_text_whose_dollars_are_doubled_expands_to_itself(text, variables):
    assert expand(text.replace("$", "$$"), variables) == text


@given(
    st.lists(st.one_of(TEXTS.map(lambda text: ("text", text)), NAMES.map(lambda name: ("name", name)))),
    st.dictionaries(NAMES, TEXTS),
)
def test_expansion_puts_in_values_and_touches_nothing_else(parts, variables):
    text = "".join(part.replace("$", "$$") if kind == "text" else f"${{{part}}}" for kind, part in parts)
    missing = [part for kind, part in parts if kind == "name" and part not in variables]
    if missing:
        with pytest.raises(ExpansionError, match=f"the variable {missing[0]},"):
            expand(text, variables)
    else:
        assert expand(text, variables) == "".join(part if kind == "text" else variables[part] for kind, part in parts)


@given(st.text(st.sampled_from("${}:-AB \\\n"), max_size=30))
def test_any_text_expands_or_is_refused(text):
    with contextlib.suppress(ExpansionError):
        assert isinstance(expand(text, {"A": "x"}), str)


@given(st.text(st.sampled_from("/ab.:\\$+{}"), max_size=20))
def test_any_text_is_a_mount_of_absolute_paths_or_refused(text):
    try:
        mount = parse_mount(text, Path("/work"), {"A": "/x"})
    except (MountError, ExpansionError):
        return
    assert mount is None or (mount.source.startswith("/") and mount.target.startswith("/"))


@given(PATHS, PATHS, FLAGS)
def test_a_mount_is_read_back_from_its_text(source, target, flags):
    mount = parse_mount(mount_text(ContainerMount(source, target, flags)), Path("/work"), {})
    assert mount is not None
    assert parse_mount(mount_text(mount), Path("/elsewhere"), {"a": "b"}) == mount


@settings(max_examples=60)
@given(
    st.dictionaries(TEXTS.filter(lambda name: name and "=" not in name), TEXTS, max_size=4),
    st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=4),
    st.lists(TEXTS.filter(bool), max_size=3, unique=True),
    st.lists(st.tuples(PATHS, PATHS, FLAGS), max_size=3),
)
def test_what_resolve_prints_resolves_to_the_same_anywhere(env, annotations, devices, mounts):
    made = [parse_mount(mount_text(ContainerMount(*each)), Path("/work"), {}) for each in mounts]
    environment = Environment(
        name="env",
        image="nvcr.io#nvidia/pytorch:24.01-py3",
        workdir="/$HOME/x",
        mounts=tuple(dict.fromkeys(mount for mount in made if mount)),
        devices=tuple(devices),
        env=env,
        annotations=annotations,
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "env.toml").write_text(edf_text(environment), newline="")
        assert resolve("./env.toml", cwd=Path(folder), variables={}).environment == environment


@settings(max_examples=60)
@given(st.lists(FILES, min_size=1, max_size=5), st.booleans())
def test_inheritance_is_what_a_plain_model_says(files, nested):
    """The bases in one list, or each on top of the next: the order in which they are laid over each other is the same."""
    with tempfile.TemporaryDirectory() as folder:
        for index, values in enumerate(files):
            bases = [index - 1] if nested and index else range(len(files) - 1) if index == len(files) - 1 else []
            text = _text_of(values, [f"./{base}.toml" for base in bases] if not nested or index else [])
            Path(folder, f"{index}.toml").write_text(text)
        found = resolve(f"./{len(files) - 1}.toml", cwd=Path(folder), variables={}).environment
    expected = {"image": "", "writable": True, "entrypoint": False}
    tables: dict[str, dict[str, str]] = {"env": {}, "annotations": {}}
    lists: dict[str, list[str]] = {"mounts": [], "devices": []}
    for values in files:
        expected.update({key: value for key, value in values.items() if key in expected})
        for key in tables:
            tables[key].update(values.get(key, {}))
        for key in lists:
            lists[key] += values.get(key, [])
    assert {key: getattr(found, key) for key in expected} == expected
    assert (found.env, found.annotations) == (tables["env"], tables["annotations"])
    assert [mount.source for mount in found.mounts] == list(dict.fromkeys(lists["mounts"]))
    assert list(found.devices) == list(dict.fromkeys(lists["devices"]))


@settings(max_examples=150)
@given(
    st.dictionaries(
        st.sampled_from([*KEYS, "imgae", "site"]),
        st.recursive(
            st.one_of(
                st.booleans(), st.integers(), st.sampled_from(["", "x", "/x:/y", "./z", "${A}", "${", "../x:ro:x"])
            ),
            lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=2)),
            max_leaves=4,
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_any_document_resolves_to_json_or_is_refused_with_lines(document, lenient):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "env.toml").write_text("\n".join(f"{key} = {_toml(value)}" for key, value in document.items()))
        found = _resolved_or_error(Path(folder), lenient)
    if isinstance(found, DocumentError):
        assert all(finding.line and finding.file for finding in found.findings)
        return
    assert environment_of(json.loads(json.dumps(found.environment.document()))) == found.environment
    assert set(found.origins) >= {("image",), ("workdir",), ("entrypoint",), ("writable",)}


def _resolved_or_error(folder, lenient):
    try:
        return resolve("./env.toml", cwd=folder, variables={"A": "1"}, search_path=[], lenient=lenient)
    except DocumentError as error:
        return error


def _toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{quoted(name)} = {_toml(inner)}" for name, inner in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value).lower() if isinstance(value, bool) else quoted(value) if isinstance(value, str) else str(value)


def _text_of(values, bases):
    lines = [f"base_environment = {quoted(bases)}"] if bases else []
    for key, value in values.items():
        if isinstance(value, dict):
            lines += [f"{key} = {{ {', '.join(f'{quoted(name)} = {quoted(text)}' for name, text in value.items())} }}"]
        else:
            lines.append(f"{key} = {str(value).lower() if isinstance(value, bool) else quoted(value)}")
    return "\n".join(lines)
