"""A real API server: Debian's etcd and the kube-apiserver that `make kubernetes` has built.

It knows Kubernetes' own kinds only: built with Go 1.19, that version dies of custom resources (its reflect2 is older than 1.0.2).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from cordee.wire.ports import pick_port

BUILT = Path(os.environ.get("CORDEE_KUBERNETES", Path.home() / ".cache" / "cordee" / "kubernetes"))


class ApiServer:
    """One API server with an empty store; `kubeconfig` lets its owner do everything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._processes: list[subprocess.Popen] = []
        self._ports = [pick_port("127.0.0.1") for _ in range(3)]
        key = folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (folder / "tokens.csv").write_text('owner-token,owner,1,"system:masters"\n')
        self.start()

    def start(self) -> None:
        store, peers, port = self._ports
        folder = self._folder
        etcd = shutil.which("etcd") or str(BUILT / "etcd")
        address = f"http://127.0.0.1:{store}"
        words = [
            etcd,
            "--data-dir",
            folder / "etcd",
            "--listen-client-urls",
            address,
            "--advertise-client-urls",
            address,
        ]
        words += ["--listen-peer-urls", f"http://127.0.0.1:{peers}", "--initial-advertise-peer-urls"]
        words += [
            f"http://127.0.0.1:{peers}",
            "--initial-cluster",
            f"default=http://127.0.0.1:{peers}",
            "--unsafe-no-fsync",
        ]
        log = (folder / "log").open("ab")
        self._processes.append(subprocess.Popen(words, stdout=log, stderr=log))
        server = [
            BUILT / "kube-apiserver",
            "--etcd-servers",
            address,
            "--secure-port",
            str(port),
            "--cert-dir",
            folder / "certs",
        ]
        server += [
            "--bind-address",
            "127.0.0.1",
            "--authorization-mode",
            "RBAC",
            "--token-auth-file",
            folder / "tokens.csv",
        ]
        server += [
            "--service-account-issuer",
            "https://cordee.test",
            "--service-account-key-file",
            folder / "accounts.key",
        ]
        server += [
            "--service-account-signing-key-file",
            folder / "accounts.key",
            "--disable-admission-plugins",
            "ServiceAccount",
        ]
        self._processes.append(subprocess.Popen([str(word) for word in server], stdout=log, stderr=log))
        self.kubeconfig.write_text(json.dumps(self._config(port)))
        deadline = time.monotonic() + 120
        while self._kubectl("get", "--raw", "/readyz").returncode:
            assert time.monotonic() < deadline, (folder / "log").read_text()[-3000:]
            time.sleep(0.5)

    def _kubectl(self, *words: str, given: str = "") -> subprocess.CompletedProcess:
        argv = ["kubectl", "--kubeconfig", str(self.kubeconfig), *words]
        return subprocess.run(argv, input=given, capture_output=True, text=True)

    def _config(self, port: int) -> dict:
        cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
        context = {"cluster": "test", "user": "owner"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "contexts": [{"name": "test", "context": context}],
            "users": [{"name": "owner", "user": {"token": "owner-token"}}],
        }

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()
