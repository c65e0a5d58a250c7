"""The contract of engines, for those that this machine can run."""

from __future__ import annotations

import pytest

from cordee.systems.environments.node.engines import find_engine
from cordee.testing.engines import EngineCase, EngineContract

pytestmark = pytest.mark.usefixtures("real")


class TestNamespaceEngine(EngineContract):
    @pytest.fixture(params=["folder as root", "squashfs as user"])
    def case(self, request, images):
        kind, _, who = request.param.split()
        prefix = request.getfixturevalue("as_user") if who == "user" else []
        return EngineCase(find_engine("namespace"), images, kind, prefix)


class TestPodmanEngine(EngineContract):
    @pytest.fixture(params=["folder as root", "squashfs as user"])
    def case(self, request, images):
        kind, _, who = request.param.split()
        prefix = request.getfixturevalue("as_user") if who == "user" else []
        return EngineCase(find_engine("podman"), images, kind, prefix)
