"""Another user of the machine opens none of it: neither the service, nor its door, nor what it keeps, nor a job's service."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from tests.systems.services.test_door import until_code

from cordee.systems.services.door.folder import DoorFolder
from cordee.testing.containers import AS_USER, UID

pytestmark = pytest.mark.usefixtures("real")

TRY = """
import json, os, socket, sys, urllib.request, urllib.error
urls, paths, hold = json.loads(sys.argv[1])
opened = []
for url in urls:
    for headers in ({}, {"Authorization": "Bearer guess"}, {"Cookie": "cordee_token=guess"}):
        try:
            urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20)
            opened.append(url)
        except urllib.error.HTTPError as error:
            assert error.code in (401, 403), error
for path in paths:
    try:
        os.listdir(path) if os.path.isdir(path) else open(path).read()
        opened.append(path)
    except PermissionError:
        pass
try:
    socket.socket(socket.AF_UNIX).connect(hold)
    opened.append(hold)
except PermissionError:
    pass
print(json.dumps([os.getuid(), opened]))
"""


@pytest.mark.gate
def test_another_user_opens_nothing_of_a_service_or_its_door(services, open_to_all):
    for folder in (services.folder, *services.folder.parents):  # only what Cordée makes keeps them out
        if str(folder) != "/" and folder.stat().st_uid == os.getuid():
            folder.chmod(folder.stat().st_mode | 0o055)
    assert services.call("door", "start")[0] == 0
    try:
        code, now, said = services.call("deploy", str(services.blueprint), "--door", "--json")
        assert code == 0, said
        endpoint = now["endpoints"][0]
        assert services.call("backup", "echo", "-o", str(services.folder / "echo.tar"))[0] == 0
        endpoint = services.call("status", "echo", "--json")[1]["services"][0]["endpoints"][0]
        until_code(f"{endpoint['url']}/data", 401)
        urls = [f"{endpoint['url']}/data", f"{endpoint['behind']}/data"]
        root, door = services.root(), DoorFolder()
        paths = [services.folder / "echo.tar", root, root / "secrets" / "token", root / "volumes", door.root]
        asked = json.dumps([urls, [*map(str, paths), now["client_file"]], str(door.hold)])
        done = subprocess.run(
            [*AS_USER, open_to_all.executable, "-c", TRY, asked], capture_output=True, text=True, cwd="/", check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [1000, []]
    finally:
        DoorFolder().stop()


def test_a_name_that_another_user_has_is_refused(services):
    services.root().mkdir(parents=True)
    os.chown(services.root(), UID, UID)
    code, _, said = services.call("deploy", str(services.blueprint))
    assert (code, "the name echo is taken by another user" in said) == (5, True), said
    assert list(services.root().iterdir()) == []
