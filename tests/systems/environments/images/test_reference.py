"""References to images, in every spelling that people try."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.machine.images.errors import ImageError
from cordee.systems.environments.images.reference import LocalPath, RegistryReference, read_reference

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ubuntu", "docker.io/library/ubuntu:latest"),
        ("ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
        (" ubuntu:24.04\n", "docker.io/library/ubuntu:24.04"),
        ("docker://ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
        ("docker://docker.io/library/ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
        ("docker.io#library/x", "docker.io/library/x:latest"),
        ("docker.io#x", "docker.io/library/x:latest"),
        ("#x:1", "docker.io/library/x:1"),
        ("index.docker.io/x", "docker.io/library/x:latest"),
        ("team/x:1", "docker.io/team/x:1"),
        ("nvcr.io/nvidia/pytorch:24.01-py3", "nvcr.io/nvidia/pytorch:24.01-py3"),
        ("nvcr.io#nvidia/pytorch:24.01-py3", "nvcr.io/nvidia/pytorch:24.01-py3"),
        ("docker://nvcr.io#nvidia/pytorch:24.01-py3", "nvcr.io/nvidia/pytorch:24.01-py3"),
        ("localhost/x", "localhost/x:latest"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        ("registry:5000/a/b/x:v1", "registry:5000/a/b/x:v1"),
        ("registry:5000#a/b/x:v1", "registry:5000/a/b/x:v1"),
        ("[::1]:5000/x", "[::1]:5000/x:latest"),
        (f"registry:5000/x@{DIGEST}", f"registry:5000/x@{DIGEST}"),
        (f"ubuntu:24.04@{DIGEST}", f"docker.io/library/ubuntu@{DIGEST}"),
        (f"nvcr.io#nvidia/x@{DIGEST}", f"nvcr.io/nvidia/x@{DIGEST}"),
    ],
)
def test_a_reference_is_read_in_every_spelling(text: str, name: str) -> None:
    found = read_reference(text)
    assert isinstance(found, RegistryReference)
    assert (found.name, found.user) == (name, None)


@pytest.mark.parametrize(
    ("text", "user", "name"),
    [
        ("ada@nvcr.io#nvidia/pytorch:1", "ada", "nvcr.io/nvidia/pytorch:1"),
        ("docker://ada@nvcr.io#nvidia/pytorch:1", "ada", "nvcr.io/nvidia/pytorch:1"),
        ("$oauthtoken@nvcr.io#nvidia/x", "$oauthtoken", "nvcr.io/nvidia/x:latest"),
        ("ada@nvcr.io/nvidia/x", "ada", "nvcr.io/nvidia/x:latest"),
        ("ada@x", "ada", "docker.io/library/x:latest"),
        (f"ada@nvcr.io#nvidia/x@{DIGEST}", "ada", f"nvcr.io/nvidia/x@{DIGEST}"),
    ],
)
def test_a_user_stands_before_the_registry(text: str, user: str, name: str) -> None:
    found = read_reference(text)
    assert isinstance(found, RegistryReference)
    assert (found.user, found.name) == (user, name)


@pytest.mark.parametrize(
    ("text", "path", "scheme"),
    [
        ("/images/x.sqsh", "/images/x.sqsh", None),
        ("./ubuntu", "/here/ubuntu", None),
        ("../ubuntu", "/ubuntu", None),
        ("x.sqsh", "/here/x.sqsh", None),
        ("images/x.squashfs", "/here/images/x.squashfs", None),
        ("oci:layout", "/here/layout", "oci"),
        ("oci:/a/layout:tag", "/a/layout", "oci"),
        ("oci-archive:x.tar", "/here/x.tar", "oci-archive"),
        ("docker-archive:/a/x.tar", "/a/x.tar", "docker-archive"),
        ("file:///a/x.sqsh", "/a/x.sqsh", None),
    ],
)
def test_a_path_is_told_from_a_reference(text: str, path: str, scheme: str | None) -> None:
    found = read_reference(text, cwd="/here")
    assert isinstance(found, LocalPath)
    assert (found.path, found.scheme) == (path, scheme)


def test_a_path_with_colons_that_exists_is_taken_whole(tmp_path: Path) -> None:
    (tmp_path / "a:b").mkdir()
    found = read_reference("oci:a:b", cwd=str(tmp_path))
    assert isinstance(found, LocalPath)
    assert found.path == str(tmp_path / "a:b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no name"),
        ("Ubuntu", "small letters"),
        ("a#b#c", "more than one `#`"),
        ("dockerd://x", "no way to get an image by dockerd://"),
        ("oci:", "no path"),
        ("x:bad tag", "tag"),
        ("-x/y.z", "no path: paths begin with"),
        ("x y", "no path"),
        ("ubuntu@sha256:123", "no whole digest"),
        ("ba_d!.io/x", "host name"),
    ],
)
def test_what_has_no_form_is_refused_with_the_forms_there_are(text: str, words: str) -> None:
    with pytest.raises(ImageError, match="(?s)" + words.replace("(", r"\(")) as caught:
        read_reference(text)
    assert caught.value.allowed
