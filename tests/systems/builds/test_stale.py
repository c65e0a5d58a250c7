"""An image that is older than its recipe, its lock or what was copied into it is said to be so."""

from __future__ import annotations

import json

import pytest

from .conftest import Kitchen

pytestmark = pytest.mark.usefixtures("real")


def said(kitchen: Kitchen) -> list[str]:
    done = kitchen.call("check", "env.toml", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return [each["text"] for each in json.loads(done.stdout)["findings"] if each["rule"] == "image-stale"]


def test_what_changed_since_the_image_was_built_is_said_until_it_is_built_again(kitchen: Kitchen):
    kitchen.build()
    assert said(kitchen) == []
    (kitchen.folder / "one.txt").write_text("changed")
    kitchen.change("echo two", "echo 2")
    (text,) = said(kitchen)
    assert text == "the image is not what would be built now: its recipe has changed, one.txt has changed"
    kitchen.build()
    assert said(kitchen) == []
    lock = kitchen.folder / "env.lock.json"
    document = json.loads(lock.read_text())
    document["image"]["digest"] = "sha256:" + 64 * "0"
    document["base"]["digest"] = "sha256:" + 64 * "1"
    lock.write_text(json.dumps(document))
    (text,) = said(kitchen)
    assert "the lock is that of another image, versions were locked anew" in text


@pytest.mark.parametrize("change", ["{", '{"schema": "cordee.lock/9"}'])
def test_a_recipe_or_lock_that_cannot_be_read_is_said(kitchen: Kitchen, change: str):
    kitchen.build()
    (kitchen.folder / "env.lock.json").write_text(change)
    (text,) = said(kitchen)
    assert "the recipe cannot be built: the lock cannot be read" in text
