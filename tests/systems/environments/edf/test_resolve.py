"""One EDF: every field with its default, all faults at once with their lines, and where each value came from."""

from __future__ import annotations

import os

import pytest

from cordee.core.errors import DocumentError
from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.edf import resolve
from cordee.systems.environments.node.document import ContainerMount, Environment


def faults(caught: pytest.ExceptionInfo[DocumentError]) -> list[tuple[int | None, str]]:
    return [(finding.line, finding.text) for finding in caught.value.findings]


def test_an_empty_file_is_the_host_itself_with_every_default(resolved):
    found = resolved("")
    assert found.environment == Environment(name="env")
    assert found.environment.writable
    assert not found.environment.entrypoint
    assert {origin.kind for origin in found.origins.values()} == {"default"}


def test_every_field_is_carried_over(resolved, tmp_path):
    environment = resolved(
        'image = "./x.sqsh"\nworkdir = "./run"\nentrypoint = true\nwritable = false\n'
        'mounts = ["/a:/b:ro"]\ndevices = ["nvidia.com/gpu=all", "/dev/fuse"]\n'
        '[env]\nA = "1"\nGONE = ""\n[annotations]\na.b = "c"\n'
    ).environment
    assert environment == Environment(
        name="env",
        image=f"{tmp_path}/x.sqsh",
        workdir=f"{tmp_path}/run",
        entrypoint=True,
        writable=False,
        mounts=(ContainerMount("/a", "/b", ("ro",)),),
        devices=("nvidia.com/gpu=all", "/dev/fuse"),
        env={"A": "1", "GONE": ""},
        annotations={"a.b": "c"},
    )


def test_an_empty_text_of_an_env_entry_unsets_the_variable(resolved):
    environment = resolved('[env]\nGONE = ""\n').environment
    assert environment.variables({"GONE": "here", "KEPT": "1"}) == {"KEPT": "1"}


@pytest.mark.parametrize(
    ("given", "value"), [('"true"', "true"), ("true", "true"), ("false", "false"), ("15263", "15263"), ("0.5", "0.5")]
)
def test_annotations_become_texts(given, value, resolved):
    assert resolved(f"[annotations]\na.b = {given}\n").environment.annotations == {"a.b": value}


def test_annotations_are_the_same_nested_dotted_and_quoted(resolved):
    texts = [
        "[annotations.a.b]\nc = 'd'",
        "[annotations]\na.b.c = 'd'",
        "[annotations]\n'a.b.c' = 'd'",
        "annotations.a.b.c = 'd'",
    ]
    assert {str(resolved(text).environment.annotations) for text in texts} == {"{'a.b.c': 'd'}"}


def test_values_of_env_keep_newlines_quotes_and_every_letter(resolved):
    value = "two\nlines, \"quotes\", 'single', tab\t, back\\slash, é, 🧗, = and ;"
    text = "[env]\nODD = " + '"two\\nlines, \\"quotes\\", \'single\', tab\\t, back\\\\slash, é, 🧗, = and ;"'
    assert resolved(text).environment.env == {"ODD": value}
    assert resolved("[env]\nODD = '${FROM_HOST}'", {"FROM_HOST": value}).environment.env == {"ODD": value}


def test_expansion_reaches_every_field(resolved):
    variables = {"X": "/x", "GPU": "nvidia.com/gpu=all"}
    environment = resolved(
        'image = "${X}/i.sqsh"\nworkdir = "${X}"\nmounts = ["${X}:/y${X}"]\ndevices = ["${GPU}"]\n'
        '[env]\nA = "${X}"\n[annotations]\na = "${X}"',
        variables,
    ).environment
    assert (environment.image, environment.workdir, environment.devices) == ("/x/i.sqsh", "/x", ("nvidia.com/gpu=all",))
    assert environment.mounts == (ContainerMount("/x", "/y/x"),)
    assert (environment.env, environment.annotations) == ({"A": "/x"}, {"a": "/x"})


def test_entries_of_env_cannot_refer_to_each_other_and_are_told_so(resolved):
    with pytest.raises(DocumentError, match=r"env.B uses the variable A, which is not defined") as caught:
        resolved('[env]\nA = "1"\nB = "${A}"')
    assert caught.value.line == 3
    assert "cannot refer to each other" in caught.value.next
    assert resolved('[env]\nA = "1"\nB = "${A}"', {"A": "host"}).environment.env == {"A": "1", "B": "host"}


def test_an_images_variables_go_before_the_hosts_inside_the_container(resolved):
    config = ImageConfig(env={"PATH": "/opt/bin", "HOME": "/root"})
    environment = resolved(
        'image = "x"\nworkdir = "${HOME}"\nmounts = ["${HOME}"]\n[env]\nPATH = "${PATH}:/custom"\n',
        config_of=lambda image: config if image == "x" else None,
    ).environment
    assert environment.env == {"PATH": "/opt/bin:/custom"}
    assert environment.workdir == "/root"
    assert environment.mounts == (ContainerMount("/users/me", "/users/me"),)


def test_mounts_and_devices_that_are_the_same_are_made_once(resolved):
    environment = resolved(
        'mounts = ["/a", "/a:/a", "${A}:/a", "/a:/a:ro"]\ndevices = ["d", "${D}", "e", "${NONE:-}"]',
        {"A": "/a/", "D": "d"},
    ).environment
    assert environment.mounts == (ContainerMount("/a", "/a"), ContainerMount("/a", "/a", ("ro",)))
    assert environment.devices == ("d", "e")


def test_a_thousand_mounts_keep_their_order(resolved):
    lines = ",\n".join(f'"/data/{index}:/in/{index}:ro"' for index in range(1000))
    found = resolved(f"mounts = [\n{lines}\n]\n")
    assert [mount.target for mount in found.environment.mounts] == [f"/in/{index}" for index in range(1000)]
    assert found.origins["mounts", 999].line == 1001


def test_all_faults_of_a_file_are_told_at_once_with_their_lines(resolved):
    with pytest.raises(DocumentError) as caught:
        resolved(
            'imgae = "x"\nentrypoint = "yes"\nmounts = ["/a:/b",\n  3]\nworkdir = 7\n'
            'devices = "gpu"\n[env]\nPORT = 80\nON = true\nX = "${NOPE}"\n[annotations]\na = [1]\n'
        )
    assert faults(caught) == [
        (1, "an EDF has no key imgae"),
        (2, "entrypoint is not true or false"),
        (4, "mounts[1] is not a list of texts"),
        (5, "workdir is not a text in quotes"),
        (6, "devices is not a list of texts"),
        (8, "env.PORT is not a text in quotes"),
        (9, "env.ON is not a text in quotes"),
        (12, "annotations.a is not a value of an annotation"),
    ]
    by_text = {finding.text: finding for finding in caught.value.findings}
    assert by_text["an EDF has no key imgae"].next == "did you mean image?"
    assert by_text["env.PORT is not a text in quotes"].next == 'write PORT = "80"'
    assert by_text["env.ON is not a text in quotes"].next == 'write ON = "true"'


@pytest.mark.parametrize(
    ("image", "allowed"),
    [("Upper/Case:1", "ubuntu:24.04"), ("ubuntu@sha256:12", "64 digits"), ("ftp://x", "docker://")],
)
def test_an_image_that_cannot_be_understood_is_refused_with_its_line(image, allowed, resolved):
    with pytest.raises(DocumentError, match="image cannot be understood") as caught:
        resolved(f'\nimage = "{image}"')
    assert caught.value.line == 2
    assert allowed in caught.value.allowed


@pytest.mark.parametrize(
    ("workdir", "hint"),
    [("run", "write ./run"), ("~/run", "write ${HOME}/run"), ("$HOME/run", "write ${HOME} instead of $HOME")],
)
def test_a_workdir_that_is_no_path_is_refused_with_what_to_write(workdir, hint, resolved):
    with pytest.raises(DocumentError, match="workdir is no path") as caught:
        resolved(f'workdir = "{workdir}"')
    assert caught.value.next == hint


def test_faults_of_values_are_told_at_once_too(resolved):
    with pytest.raises(DocumentError) as caught:
        resolved('image = "${A}"\nworkdir = "run"\nmounts = ["x:/y"]\n[env]\nB = "${B"')
    assert [line for line, _ in faults(caught)] == [1, 2, 3, 5]


@pytest.mark.parametrize("key", ["Image", "mount", "enviroment", "base_enviroment", "annotation", "work_dir"])
def test_an_unknown_key_is_refused_with_the_nearest_name(key, resolved):
    with pytest.raises(DocumentError, match=f"an EDF has no key {key}") as caught:
        resolved(f'{key} = "x"')
    assert "did you mean" in caught.value.next
    assert "image" in caught.value.allowed


def test_a_lenient_reading_keeps_unknown_keys_with_a_warning(resolved):
    found = resolved('image = "x"\nsite_option = 3\n', lenient=True)
    assert found.environment.image == "x"
    assert found.unknown == {"site_option": 3}
    assert [(finding.severity, finding.line) for finding in found.findings] == [("warn", 2)]


def test_a_lenient_reading_is_not_lenient_with_types(resolved):
    with pytest.raises(DocumentError):
        resolved("image = 3", lenient=True)


def test_a_table_that_nothing_acts_on_is_kept_as_it_is(resolved):
    found = resolved('image = "x"\n[build]\nfrom = "${X}"\n[startup]\n[stack]\n')
    assert found.additions == {"build": {"from": "${X}"}}


def test_a_recipe_whose_image_has_no_name_is_refused_so_that_nobody_gets_the_hosts_root(resolved):
    with pytest.raises(DocumentError, match="build makes an image that the environment does not name") as caught:
        resolved('[build]\nfrom = "debian:12"\n[env]\nX = "$HOME"\n')  # a warning beside it hides nothing
    assert faults(caught)[0][0] == 1


def test_a_name_without_braces_is_left_as_it_is_with_a_warning(resolved):
    found = resolved('mounts = ["/data/$USER"]\n[env]\nX = "$HOME/x"')
    assert found.environment.env == {"X": "$HOME/x"}
    assert found.environment.mounts == (ContainerMount("/data/$USER", "/data/$USER"),)
    assert {finding.line: finding.given for finding in found.findings} == {1: "$USER", 3: "$HOME"}


@pytest.mark.parametrize(
    ("text", "line"),
    [("image = x", 1), ('image = "x"\nimage = "y"', 2), ('\n\n[env\nA="1"', 3), ('mounts = ["/a"\n"/b"]', 2)],
)
def test_what_is_no_toml_is_refused_with_its_line(text, line, resolved):
    with pytest.raises(DocumentError, match="not valid TOML") as caught:
        resolved(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    "text", ['[env]\n"A=B" = "x"', '[env]\n"" = "x"', '[env]\nA = "x\\u0000y"', 'image = "a\\u0000"']
)
def test_what_no_variable_or_path_can_hold_is_refused(text, resolved):
    with pytest.raises(DocumentError):
        resolved(text)


def test_bytes_that_are_no_text_are_refused_where_they_come_in(resolved):
    with pytest.raises(DocumentError, match=r"env.X holds bytes that are not UTF-8"):
        resolved('[env]\nX = "${RAW}"', {"RAW": "caf\udce9"})
    with pytest.raises(DocumentError, match=r"mounts\[0\] holds bytes that are not UTF-8"):
        resolved('mounts = ["/${RAW}"]', {"RAW": "caf\udce9"})


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(DocumentError, match="is not a file"):
        resolve("./pipe.toml", cwd=tmp_path, variables={})


def test_every_value_says_which_line_gave_it_before_expansion(resolved, tmp_path):
    origins = resolved(
        'image = "${USER}"\nmounts = ["/a",\n  "${HOME}"]\n[env]\nA = "1"\n[annotations.b]\nc = true'
    ).origins
    assert [(keys, origin.line, origin.value) for keys, origin in origins.items() if origin.kind == "edf"] == [
        (("image",), 1, "${USER}"),
        (("mounts", 0), 2, "/a"),
        (("mounts", 1), 3, "${HOME}"),
        (("env", "A"), 5, "1"),
        (("annotations", "b.c"), 7, "true"),
    ]
    assert origins["image",].file == str(tmp_path / "env.toml")
    assert origins["image",].instead.kind == "default"
    assert origins["workdir",].kind == "default"


def test_an_edf_that_is_not_there_is_an_error_with_what_is(tmp_path, write):
    write("edfs/pytorch.toml", "")
    variables = {"EDF_PATH": f"{tmp_path}/edfs:{tmp_path}/none"}
    with pytest.raises(DocumentError, match="there is no EDF pytroch on the search path") as caught:
        resolve("pytroch", cwd=tmp_path, variables=variables)
    assert caught.value.next == "did you mean pytorch?"
    write("here.toml", "")
    with pytest.raises(DocumentError) as caught:
        resolve("here", cwd=tmp_path, variables=variables)
    assert caught.value.next == "did you mean ./here.toml?"
    with pytest.raises(DocumentError, match="there is no file") as caught:
        resolve("./her.toml", cwd=tmp_path, variables=variables)
    assert caught.value.next == "did you mean here?"
    with pytest.raises(DocumentError, match="is a folder"):
        resolve("./edfs", cwd=tmp_path, variables=variables)


def test_a_name_is_a_path_or_looked_up_as_at_cscs(tmp_path, write):
    write("edfs/a.toml", 'image = "found"')
    write("edfs/team/b.toml", 'image = "below"')
    write("later/a.toml", 'image = "later"')
    write("later/c.toml", 'image = "second"')
    write("a.toml", 'image = "here"')
    variables = {"EDF_PATH": f"{tmp_path}/edfs:{tmp_path}/later"}
    names = {
        "a": "found",
        "c": "second",
        "team/b": "below",
        "./a.toml": "here",
        "a.toml": "here",
        "c.toml": "second",
        "edfs/team/b.toml": "below",
        str(tmp_path / "later" / "a.toml"): "later",
    }
    found = {name: resolve(name, cwd=tmp_path, variables=variables).environment.image for name in names}
    assert found == names


def test_without_edf_path_names_are_looked_up_at_home(tmp_path, write):
    write(".edf/a.toml", 'image = "home"')
    assert resolve("a", cwd=tmp_path, variables={"HOME": str(tmp_path)}).environment.image == "home"
