"""The guard runs a program as its own Python would, and asks everybody for the token."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cordee.core.web import token_guard
from cordee.core.web.token_guard import python_words

SCRIPT = """
import beside, http.server, sys
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print(server.server_address[1], beside.WORD, *sys.argv[1:], flush=True)
server.serve_forever()
"""
WSGI = """
from wsgiref.simple_server import make_server
server = make_server("127.0.0.1", 0, lambda environ, start: start("200 OK", []) and None or [b"secret"])
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder first on PATH, with a `python3` of its own."""
    (tmp_path / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def written(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_a_program_is_told_from_the_python_that_runs_it(folder):
    python, script = str(folder / "python3"), written(folder / "serve", "#!/usr/bin/env python3\n")
    assert python_words(["python3", "-u", "-X", "dev", "-m", "http.server", "80"]) == (
        [python, "-u", "-X", "dev"],
        ["-m", "http.server", "80"],
    )
    assert python_words(["python3", "serve.py", "-m"]) == ([python], ["--", "serve.py", "-m"])
    assert python_words([python, "-c", "pass"]) == ([python], ["-c", "pass"])
    assert python_words(["serve", "80"]) == ([python], ["--", script, "80"])
    written(folder / "serve", f"#!{python} -E\n")
    assert python_words(["serve"]) == ([python, "-E"], ["--", script])
    written(folder / "serve", f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n")
    assert python_words(["serve"]) == ([python], ["--", script])


def test_a_program_that_no_python_runs_is_none(folder):
    written(folder / "serve", "#!/bin/sh\n")
    assert python_words(["serve"]) is None
    assert python_words(["ls"]) is None
    assert python_words(["python3"]) is None
    with pytest.raises(FileNotFoundError, match="no program no-such"):
        python_words(["no-such"])


def asked(address: str, **headers: str) -> int:
    try:
        return urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("form", ["script", "file", "text", "wsgi"])
def test_web_servers_of_the_standard_library_ask_for_the_token(folder, form):
    (folder / "token").write_text("open-sesame\n")
    (folder / "beside.py").write_text("WORD = 'beside'\n")
    script = written(folder / "serve", "#!/usr/bin/env python3\n" + SCRIPT)
    command = {
        "script": ["serve", "word"],
        "file": ["python3", "-u", script, "word"],
        "text": ["python3", "-c", SCRIPT.replace("beside, ", "").replace("beside.WORD", "'beside'"), "word"],
        "wsgi": ["python3", "-c", WSGI],
    }[form]
    guarded = [sys.executable, token_guard.__file__, str(folder / "token"), *command]
    with subprocess.Popen(guarded, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        port, *words = server.stdout.readline().split()
        address = f"http://127.0.0.1:{port}/"
        try:
            assert words == ([] if form == "wsgi" else ["beside", "word"])
            assert asked(address) == 401
            assert asked(address, Authorization="Bearer other") == 401
            assert asked(address, Authorization="Bearer open-sesame") == 200
            basic = base64.b64encode(b"me:open-sesame").decode()
            assert asked(address, Authorization=f"Basic {basic}") == 200
            assert asked(address, Cookie="cordee_token=open-sesame") == 200
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            assert opener.open(f"{address}?token=open-sesame", timeout=20).status == 200
        finally:
            server.kill()
