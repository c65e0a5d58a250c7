"""A data set in an object store is measured beside large ranged reads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cordee.systems.data.bench.store import store_rate
from cordee.systems.data.node.read.limits import find_limit
from cordee.systems.data.node.shards.index import open_index
from support.servers.object_store import DisposableS3


@pytest.mark.usefixtures("real")
def test_a_data_set_in_a_store_is_measured_beside_ranged_reads(bench, packed, monkeypatch):
    with DisposableS3() as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        address = f"s3://{server.bucket}/set"
        bench.env |= server.variables
        upload = "import sys; from cordee.wire.stores import open_store\n"
        upload += "for name in sys.argv[2:]: open_store(sys.argv[1]).write(name.rpartition('/')[2], open(name, 'rb'))"
        names = [str(path) for path in sorted(packed.iterdir())]
        subprocess.run([sys.executable, "-c", upload, address, *names], env=bench.env, check=True)
        found = bench.json(address, "--batch", "32", "--cache", "cold")
        assert store_rate(f"s3://{server.bucket}/nothing", 0.1) is None
    assert found["cache"] == "remote"
    assert found["limit_bytes_per_s"] > 0
    assert found["share_of_limit"] == pytest.approx(found["bytes_per_s"] / found["limit_bytes_per_s"])
    assert "its caches are its own" in found["notes"][0]
    kept = find_limit(open_index(packed).id, address, environ=bench.env)
    assert kept is not None
    assert kept.cache == "remote"
