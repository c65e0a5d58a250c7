"""Inheritance: order, depth, cycles, and what would hold without the one that holds."""

from __future__ import annotations

import pytest

from cordee.core.errors import DocumentError
from cordee.systems.environments.node.document import ContainerMount


def chain_of(write, count: int) -> None:
    """Write level-1.toml to level-<count>.toml, each on top of the next."""
    for level in range(1, count + 1):
        base = f'base_environment = "./level-{level + 1}.toml"\n' if level < count else 'image = "deepest"\n'
        write(f"level-{level}.toml", f'{base}mounts = ["/{level}"]\n[env]\nLEVEL = "{level}"\nL{level} = "x"\n')


def test_bases_are_laid_over_each_other_from_left_to_right_and_the_file_over_them(resolved, write):
    write("one.toml", 'image = "one"\nwritable = false\nmounts = ["/one", "/both"]\n[env]\nA = "one"\nB = "one"\n')
    write("two.toml", 'image = "two"\nentrypoint = true\nmounts = ["/both", "/two"]\n[env]\nB = "two"\nC = "two"\n')
    found = resolved(
        'base_environment = ["./one.toml", "./two.toml"]\nentrypoint = false\nmounts = ["/own", "/one"]\n[env]\nC = "own"\n'
    )
    environment = found.environment
    assert (environment.image, environment.writable, environment.entrypoint) == ("two", False, False)
    assert environment.mounts == tuple(ContainerMount(path, path) for path in ("/one", "/both", "/two", "/own"))
    assert environment.env == {"A": "one", "B": "two", "C": "own"}
    assert [path.name for path in found.files] == ["one.toml", "two.toml", "env.toml"]


def test_what_would_hold_otherwise_is_told_in_order(resolved, write):
    write("one.toml", '\nimage = "one"\n[annotations]\na.b = "one"\n')
    write("two.toml", 'image = "two"\n[annotations.a]\nb = "two"\n')
    origins = resolved('base_environment = ["./one.toml", "./two.toml"]\nimage = "own"').origins
    assert [(each.value, each.line) for each in origins["image",].all()] == [
        ("own", 2),
        ("two", 1),
        ("one", 2),
        ("", None),
    ]
    assert [(each.value, each.line) for each in origins["annotations", "a.b"].all()] == [("two", 3), ("one", 4)]


def test_a_file_inherited_twice_counts_where_it_stands_last(resolved, write):
    write("one.toml", 'image = "one"\nmounts = ["/one"]')
    write("two.toml", 'image = "two"\nmounts = ["/two"]')
    environment = resolved('base_environment = ["./one.toml", "./two.toml", "./one.toml"]').environment
    assert environment.image == "one"
    assert environment.mounts == (ContainerMount("/one", "/one"), ContainerMount("/two", "/two"))


def test_ten_levels_resolve(resolved, write):
    chain_of(write, 9)
    environment = resolved('base_environment = "./level-1.toml"\n[env]\nLEVEL = "0"').environment
    assert environment.image == "deepest"
    assert [mount.target for mount in environment.mounts] == [f"/{level}" for level in range(9, 0, -1)]
    assert environment.env["LEVEL"] == "0"
    assert {f"L{level}" for level in range(1, 10)} <= set(environment.env)


def test_eleven_levels_are_refused_with_the_whole_chain(resolved, write):
    chain_of(write, 10)
    with pytest.raises(DocumentError, match="deeper than 10 levels") as caught:
        resolved('base_environment = "./level-1.toml"')
    assert caught.value.given.count(" -> ") == 10
    assert caught.value.file.endswith("level-9.toml")
    assert caught.value.line == 1


def test_eleven_levels_are_refused_though_a_shorter_way_to_them_was_read_before(resolved, write):
    chain_of(write, 9)
    write("longer.toml", 'base_environment = "./level-1.toml"')
    with pytest.raises(DocumentError, match="deeper than 10 levels"):
        resolved('base_environment = ["./level-1.toml", "./longer.toml"]')


@pytest.mark.parametrize("length", [1, 2, 3, 9])
def test_a_cycle_is_named_with_the_whole_chain(length, resolved, write, tmp_path):
    for index in range(1, length):
        write(f"{index}.toml", f'base_environment = "./{index + 1 if index + 1 < length else "env"}.toml"\n')
    with pytest.raises(DocumentError, match="inherits from itself") as caught:
        resolved(f'image = "x"\nbase_environment = "./{1 if length > 1 else "env"}.toml"')
    names = ["env", *map(str, range(1, length)), "env"]
    assert caught.value.given == " -> ".join(str(tmp_path / f"{name}.toml") for name in names)
    assert caught.value.line == (1 if length > 1 else 2)


def test_a_base_that_is_not_there_is_named_with_the_line_that_asks_for_it(resolved, write):
    write("one.toml", 'image = "one"\n\nbase_environment = ["./env2.toml",\n "pytorch"]')
    with pytest.raises(DocumentError) as caught:
        resolved('base_environment = "./one.toml"', {"EDF_PATH": "/none"})
    assert [(finding.line, finding.rule) for finding in caught.value.findings] == [
        (3, "no-such-edf"),
        (4, "no-such-edf"),
    ]
    assert all(finding.file.endswith("one.toml") for finding in caught.value.findings)


def test_faults_of_all_files_are_told_at_once(resolved, write):
    write("one.toml", "image = 1")
    write("two.toml", "image = ")
    with pytest.raises(DocumentError) as caught:
        resolved('base_environment = ["./one.toml", "./two.toml"]\nwritable = "no"')
    assert sorted(finding.file.rsplit("/", 1)[-1] for finding in caught.value.findings) == [
        "env.toml",
        "one.toml",
        "two.toml",
    ]


def test_bases_are_relative_to_the_caller_and_may_hold_variables(resolved, write, tmp_path):
    write("deep/one.toml", 'base_environment = "./two.toml"')
    write("two.toml", 'image = "caller"')
    write("deep/two.toml", 'image = "file"')
    environment = resolved('base_environment = "${FOLDER}/one.toml"', {"FOLDER": f"{tmp_path}/deep"}).environment
    assert environment.image == "caller"


@pytest.mark.parametrize("base", ['""', "[]", '[""]', '"${NONE:-}"'])
def test_an_empty_base_is_none(base, resolved):
    assert len(resolved(f"base_environment = {base}").files) == 1


def test_a_value_that_is_overridden_need_not_be_defined(resolved, write):
    write("one.toml", 'image = "${NOWHERE}"\n[env]\nA = "${NOWHERE}"')
    environment = resolved('base_environment = "./one.toml"\nimage = "x"\n[env]\nA = "y"').environment
    assert (environment.image, environment.env) == ("x", {"A": "y"})


def test_an_entry_may_take_a_base_back(resolved, write):
    write("one.toml", 'image = "x"\nworkdir = "/x"\n[env]\nA = "1"')
    environment = resolved('base_environment = "./one.toml"\nimage = ""\nworkdir = ""\n[env]\nA = ""').environment
    assert (environment.image, environment.workdir, environment.env) == ("", None, {"A": ""})


def test_many_ways_to_the_same_files_are_read_once_each(resolved, write):
    for level in range(8):
        bases = ", ".join([f'"./d{level + 1}.toml"'] * 8) if level < 7 else '"./leaf.toml"'
        write(f"d{level}.toml", f"base_environment = [{bases}]")
    write("leaf.toml", 'image = "leaf"')
    found = resolved('base_environment = "./d0.toml"')
    assert found.environment.image == "leaf"
    assert len(found.files) == 10
