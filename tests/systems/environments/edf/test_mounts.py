"""Mounts in every form, and words for those that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.systems.environments.edf.expand import ExpansionError
from cordee.systems.environments.edf.mounts import MountError, mount_text, parse_mount
from cordee.systems.environments.node.document import ContainerMount

CWD = Path("/home/me")
VARIABLES = {"HOME": "/users/me", "PAIR": "/a:/b:ro", "ODD": "/a:b"}


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("/a:/b", ContainerMount("/a", "/b")),
        ("/capstor", ContainerMount("/capstor", "/capstor")),
        ("/capstor/", ContainerMount("/capstor", "/capstor")),
        ("/", ContainerMount("/", "/")),
        ("/a:/b:ro", ContainerMount("/a", "/b", ("ro",))),
        ("/a:/b:ro+private", ContainerMount("/a", "/b", ("ro", "private"))),
        ("/a:/b:ro,private", ContainerMount("/a", "/b", ("ro", "private"))),
        ("/a:/b:ro+ro", ContainerMount("/a", "/b", ("ro",))),
        ("/a:/b:", ContainerMount("/a", "/b")),
        ("/a.sqsh:/b:sqsh", ContainerMount("/a.sqsh", "/b", ("sqsh",))),
        ("./data:/data", ContainerMount("/home/me/data", "/data")),
        ("../data:./data", ContainerMount("/home/data", "/home/me/data")),
        (".", ContainerMount("/home/me", "/home/me")),
        ("./x.sqsh:/x:sqsh", ContainerMount("/home/me/x.sqsh", "/x", ("sqsh",))),
        ("${HOME}:${HOME}", ContainerMount("/users/me", "/users/me")),
        ("${HOME}", ContainerMount("/users/me", "/users/me")),
        ("${NONE:-/a}:/b", ContainerMount("/a", "/b")),
        ("${NONE:-/a}:${NONE:-/b}:ro", ContainerMount("/a", "/b", ("ro",))),
        ("${PAIR}", ContainerMount("/a", "/b", ("ro",))),
        ("${ODD}:/b", ContainerMount("/a:b", "/b")),
        (r"/a\:b:/c", ContainerMount("/a:b", "/c")),
        (r"/a\:b", ContainerMount("/a:b", "/a:b")),
        (r"/a\\:/c", ContainerMount("/a\\", "/c")),
        ("/a b:/c d", ContainerMount("/a b", "/c d")),
        ("/a/../b:/c/../d", ContainerMount("/a/../b", "/d")),
        ("//a//b/:/c/", ContainerMount("/a/b", "/c")),
        ("${NONE:-}", None),
        ("", None),
    ],
)
def test_a_mount_is_understood(text, mount):
    assert parse_mount(text, CWD, VARIABLES) == mount


@pytest.mark.parametrize(
    ("text", "complaint", "hint"),
    [
        ("a:/b", "a source that is no path: a", "write ./a"),
        ("/a:b", "a target that is no path: b", "write ./b"),
        ("$HOME:/b", "a source that is no path: $HOME", "write ${HOME} instead of $HOME"),
        ("~/x:/b", "a source that is no path: ~/x", "write ${HOME}/x"),
        (":/b", "has no source", "name the source"),
        ("/a:", "has no target", "name the target"),
        ("/a:/b:ro:rw", "has 4 parts", r"write \: for a colon that belongs to a path"),
        ("/a:/b:ro+privat", "has a flag that is not known: privat", "did you mean private?"),
        ("/a:/b:sqsh+ro", "joins sqsh with other flags", "leave the others out"),
    ],
)
def test_what_is_no_mount_is_refused_with_what_to_write(text, complaint, hint):
    with pytest.raises(MountError) as caught:
        parse_mount(text, CWD, VARIABLES)
    assert complaint in caught.value.text
    assert caught.value.next == hint
    assert caught.value.given == text


def test_unknown_flags_are_kept_by_a_lenient_reading():
    assert parse_mount("/a:/b:ro+idmap", CWD, {}, lenient=True) == ContainerMount("/a", "/b", ("ro", "idmap"))


@pytest.mark.parametrize(
    "mount",
    [ContainerMount("/a:b\\", "/$c", ("ro", "private")), ContainerMount("/a", "/a"), ContainerMount("/$HOME", "/x:y")],
)
def test_the_text_of_a_mount_is_understood_as_that_mount(mount):
    assert parse_mount(mount_text(mount), CWD, {}) == mount


@pytest.mark.parametrize("form", ["${HOME@Q}", "${HOME:1}", "${HOME/a/b}", "${HOME^}"])
def test_a_form_of_the_shell_is_named_as_it_stands(form):
    with pytest.raises(ExpansionError) as caught:
        parse_mount(f"{form}/data:/data", CWD, VARIABLES)
    assert caught.value.text == f"is of no known form: {form}"
