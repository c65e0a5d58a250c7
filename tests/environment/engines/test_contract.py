"""The contract of engines, for those that this machine can run."""

from __future__ import annotations

import pytest

from cordee.environment.engines import find_engine
from cordee.testing.containers import AS_USER
from cordee.testing.engines import EngineCase, EngineContract


@pytest.mark.slow
class TestNamespaceEngine(EngineContract):
    @pytest.fixture(params=["folder as root", "squashfs as user"])
    def case(self, request, images):
        kind, _, who = request.param.split()
        return EngineCase(find_engine("namespace"), images, kind, AS_USER if who == "user" else [])


@pytest.mark.slow
class TestPodmanEngine(EngineContract):
    @pytest.fixture(params=["folder as root", "squashfs as user"])
    def case(self, request, images):
        kind, _, who = request.param.split()
        return EngineCase(find_engine("podman"), images, kind, AS_USER if who == "user" else [])
