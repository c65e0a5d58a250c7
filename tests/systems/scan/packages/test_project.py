"""What projects ask for: files of requirements, settings and locks, each known by what stands in it."""

from __future__ import annotations

import pytest

from cordee.systems.scan.packages.names import known_names
from cordee.systems.scan.packages.project import asked_file

SHA = "a" * 64


def judged(folder, name, text, internal=()):
    place = folder / name
    place.write_text(text)
    return asked_file(str(place), known_names(None, internal))


def rules(asked):
    return {(sight.rule, sight.severity) for sight in asked.sights}


PINNED = f"numpy==1.26.4 \\\n    --hash=sha256:{SHA} \\\n    --hash=sha256:{'b' * 64}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PINNED, set()),
        ("numpy==1.26.4\n", {("package-no-hash", "warn")}),
        (PINNED + "scipy==1.1\n", {("package-no-hash", "warn")}),
        ("--extra-index-url https://a.example/simple\nnumpy\n", {("package-extra-index", "warn"), ("package-no-hash", "warn")}),
        ("--extra-index-url https://a.example/simple\n" + PINNED, set()),
        ("-i http://a.example/simple\n" + PINNED, {("package-index-insecure", "warn")}),
        ("-ihttp://a.example/simple\nnumpy\n", {("package-index-insecure", "block"), ("package-no-hash", "warn")}),
        ("--index-url=http://127.0.0.1:3141/simple\n" + PINNED, set()),
        ("--trusted-host a.example\n" + PINNED, {("package-trusted-host", "warn")}),
        (f"reqeusts==2 --hash=sha256:{SHA}\n", {("package-typosquat", "unknown")}),
        ("a @ git+https://x.example/a@main\n", {("package-direct-url", "warn"), ("package-no-hash", "warn")}),
        (f"a @ git+https://x.example/a@{'1' * 40}\n", set()),
        ("http://x.example/numpy-1.0-py3-none-any.whl\n", {("package-index-insecure", "block"), ("package-no-hash", "warn")}),
        (f"https://x.example/numpy-1.0.tar.gz --hash=sha256:{SHA}\n", set()),
        ("what is this?!\n", {("package-unreadable", "unknown")}),
        ("-r other.txt\n-e .\n./local\n# a remark\n", set()),
    ],
)  # fmt: skip
def test_lines_of_requirements_are_judged(tmp_path, text, expected):
    assert rules(judged(tmp_path, "requirements-dev.txt", text)) == expected


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_requirements_are_read_in_every_encoding_that_pip_reads(tmp_path, encoding):
    place = tmp_path / "requirements.txt"
    begin = "" if encoding in ("utf-8-sig", "utf-16") else "\ufeff"
    place.write_bytes(f"{begin}--trusted-host a.example\n{PINNED}".encode(encoding))
    assert rules(asked_file(str(place), known_names(None, ()))) == {("package-trusted-host", "warn")}


def test_a_sites_own_package_must_not_be_looked_for_in_public_indexes(tmp_path):
    internal = ("centre-*", "Lab_Tools")
    for text, expected in (
        ("centre-models>=1\n", True),
        ("lab.tools\n--extra-index-url https://pkg.centre.example/simple\n", True),
        ("--index-url https://pkg.centre.example/simple\ncentre-models==1\n", False),
        (f"centre-models==1 --hash=sha256:{SHA}\n", False),
        ("--no-index\n--find-links /wheels\ncentre-models\n", False),
        ("numpy\n", False),
    ):
        asked = judged(tmp_path, "requirements.txt", text, internal)
        assert (("package-confusion", "block") in rules(asked)) is expected, text


def test_a_file_of_requirements_is_known_by_its_lines_and_texts_are_none(tmp_path):
    assert judged(tmp_path, "deps.txt", "numpy>=1\ntorch\n").kind == "requirements"
    for text in ("one word a line\nand more\n", "hello\nworld\n", "", "a == b\nsee above, please\n"):
        assert judged(tmp_path, "notes.txt", text) is None


def test_settings_of_pip_and_uv_and_poetry(tmp_path):
    two = "[global]\nindex-url = https://pypi.org/simple\nextra-index-url =\n    https://a.example/simple\n    http://b.example/simple\ntrusted-host = a.example\n"
    assert rules(judged(tmp_path, "pip.conf", two)) == {
        ("package-extra-index", "warn"), ("package-index-insecure", "block"), ("package-trusted-host", "warn"),
    }  # fmt: skip
    index = '[[index]]\nname = "a"\nurl = "https://a.example/simple"\n'
    assert rules(judged(tmp_path, "uv.toml", index)) == set()
    assert rules(judged(tmp_path, "uv.toml", 'index-strategy = "unsafe-best-match"\n' + index)) == {
        ("package-extra-index", "warn")
    }
    sources = '[tool.poetry]\nname = "x"\n' + "".join(
        f'[[tool.poetry.source]]\nname = "{name}"\nurl = "https://{name}.example/simple"\n' for name in "ab"
    )
    assert rules(judged(tmp_path, "pyproject.toml", sources)) == {("package-extra-index", "warn")}
    project = (
        '[project]\nname = "x"\ndependencies = ["torhc>=2", "numpy"]\n[project.optional-dependencies]\nx = ["nunpy"]\n'
    )
    assert [sight.text.split()[0] for sight in judged(tmp_path, "pyproject.toml", project).sights] == ["torhc", "nunpy"]


UV = """version = 1
requires-python = ">=3.11"
[[package]]
name = "numpy"
version = "1.26.4"
source = {{ registry = "https://pypi.org/simple" }}
wheels = [{{ url = "https://x.example/numpy.whl"{hash} }}]
[[package]]
name = "mine"
version = "0.1"
source = {{ editable = "." }}
"""
PYLOCK = """lock-version = "1.0"
created-by = "made"
[[packages]]
name = "numpy"
version = "1.26.4"
[[packages.wheels]]
url = "https://x.example/numpy.whl"
hashes = {{{hash}}}
"""
POETRY = """[[package]]
name = "numpy"
version = "1.26.4"
files = [{{file = "numpy.whl"{hash}}}]
[metadata]
lock-version = "2.0"
"""


@pytest.mark.parametrize(
    ("name", "text", "hashed"),
    [
        ("uv.lock", UV, f', hash = "sha256:{SHA}"'),
        ("pylock.toml", PYLOCK, f'sha256 = "{SHA}"'),
        ("poetry.lock", POETRY, f', hash = "sha256:{SHA}"'),
    ],
)
def test_locks_are_read_and_say_which_packages_have_no_hash(tmp_path, name, text, hashed):
    asked = judged(tmp_path, name, text.format(hash=hashed))
    assert [(one.name, one.version) for one in asked.packages] == [("numpy", "1.26.4")]
    assert rules(asked) == set()
    assert rules(judged(tmp_path, name, text.format(hash=""))) == {("package-no-hash", "warn")}


def test_an_environment_of_conda_is_judged_with_what_pip_adds(tmp_path):
    text = "name: x\nchannels: [http://c.example/x, conda-forge]\ndependencies:\n- python=3.11\n- numpy\n- pip:\n  - torhc\n"
    assert rules(judged(tmp_path, "environment.yml", text)) == {
        ("package-index-insecure", "block"), ("package-typosquat", "unknown"), ("package-no-hash", "warn"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("uv.lock", "version = 1\n[[package]\n"),
        ("pyproject.toml", '[project]\nname = 1\ndependencies = 7\n'),
        ("pip.conf", "no section\n"),
        ("environment.yml", "dependencies: [{pip: 7}]\n"),
    ],
)  # fmt: skip
def test_a_broken_file_is_said_or_passed_by_and_never_ends_the_scan(tmp_path, name, text):
    asked = judged(tmp_path, name, text)
    assert asked is None or rules(asked) <= {("package-unreadable", "unknown")}


def test_no_file_takes_long_whatever_stands_in_it(tmp_path):
    judged(tmp_path, "requirements.txt", "a\\\n" * 200_000)
    judged(tmp_path, "constraints.txt", "--hash=" * 100_000)
    judged(tmp_path, "environment.yml", "dependencies: " + "[" * 50_000)
    judged(tmp_path, "uv.lock", "a = " + "[" * 50_000)


def test_names_that_are_nearly_known_ones(tmp_path):
    site = tmp_path / "names.txt"
    site.write_text("# ours\ncentre_models\ntorhc  # known here\n")
    known = known_names(str(site), ("own-*",))
    for name, other in {
        "reqeusts": "requests", "numpyy": "numpy", "transfomers": "transformers", "py-torch": "pytorch", "scikitlearn": "scikit-learn",
        "centremodels": "centre-models", "torhc": None, "own-anything": None, "boto4": None, "numpy": None, "nobody-knows-this": None, "abc": None,
    }.items():  # fmt: skip
        assert known.looks_like(name) == other, name
