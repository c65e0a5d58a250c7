"""What clients of a service see while it is upgraded, killed and started again.

    python benchmarks/service_changes.py upgrades [--times 10] [--rate 40] [--pause 2] [--mlflow]   behind the front door
    python benchmarks/service_changes.py restarts [--times 200]                Redis, its data on a volume
    python benchmarks/service_changes.py first-answer [--times 5] [--podman BLUEPRINT]

`upgrades`: requests that write a line to a volume (or a metric to MLflow), and what became of each; at the end all that was
acknowledged is looked for.
`restarts`: stopped, killed, or killed with all that runs it, at a random moment of a stream of writes; each acknowledged one is looked for.
`first-answer`: seconds from the command until HTTP 200, beside a plain `mlflow server` of the same arguments, in turn.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

from cordee.machine.processes.tree import all_processes


def cordee(*words: str, check: bool = True) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "cordee.faces.cli", "service", *words], stdout=subprocess.PIPE, text=True
    )
    if done.returncode and check:
        raise SystemExit(f"cordee service {' '.join(words)}: exit code {done.returncode}: {done.stdout}")
    return json.loads(done.stdout) if done.stdout.startswith("{") else {}


def client_of(now: dict) -> dict[str, str]:
    lines = Path(now["client_file"]).read_text().splitlines()
    return dict(shlex.split(line)[1].split("=", 1) for line in lines)


class Service:
    """A service with a volume behind the front door, to which numbers are written one by one."""

    def __init__(self, now: dict) -> None:
        self.url = now["endpoints"][0]["url"]
        self.client = client_of(now)

    def call(self, path: str, authorization: str, body: bytes | None) -> bytes:
        headers = {"Authorization": authorization, "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, body, headers), timeout=300) as answer:
            return answer.read()


class Mlflow(Service):
    def __init__(self, now: dict) -> None:
        super().__init__(now)
        password = self.client["MLFLOW_TRACKING_PASSWORD"]
        self._basic = "Basic " + base64.b64encode(f"admin:{password}".encode()).decode()
        self.run = self._ask("runs/create", experiment_id="0")["run"]["info"]["run_id"]

    def _ask(self, path: str, **body) -> dict:
        return json.loads(
            self.call(f"/api/2.0/mlflow/{path}", self._basic, json.dumps(body).encode() if body else None)
        )

    def write(self, number: int) -> None:
        self._ask("runs/log-metric", run_id=self.run, key="loss", value=1.0, timestamp=number, step=number)

    def stored(self) -> list[int]:
        found, token = [], ""
        while True:
            path = f"metrics/get-history?run_id={self.run}&metric_key=loss&max_results=1000&page_token={token}"
            page = self._ask(path)
            found += [int(one["step"]) for one in page.get("metrics", ())]
            token = page.get("next_page_token", "")
            if not token:
                return found


LEDGER = """
import http.server, os, sys
port, host, token, data = int(sys.argv[1]), sys.argv[2], open(sys.argv[3]).read().strip(), sys.argv[4]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.headers.get("Authorization") == "Bearer " + token
        body = open(data, "rb").read() if known and self.path == "/all" and os.path.exists(data) else b""
        self.answer(200 if known or self.path == "/health" else 401, body)
    def do_POST(self):
        if self.headers.get("Authorization") != "Bearer " + token:
            return self.answer(401, b"")
        line = self.rfile.read(int(self.headers["Content-Length"])) + b"\\n"
        file = os.open(data, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line); os.fsync(file); os.close(file)
        self.answer(200, b"")
    def answer(self, code, body):
        self.send_response(code); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *words): pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024  # of its own it has 5, too few for what waited at the door and comes at once
Server((host, port), Handler).serve_forever()
"""
LEDGER_BLUEPRINT = """
schema = 1
name = "ledger"
argv = ["python", "./ledger.py", "{port.http}", "{host}", "{secret.token}", "{volume.data}/lines"]
ports.http = { port = 8080 }
ready = { path = "/health", every = "0.2s" }
closed = { path = "/all" }
volumes.data = { path = "/data" }
secrets.token = {}
client.TOKEN = "{value.token}"
"""


class Ledger(Service):
    def write(self, number: int) -> None:
        self.call("/", f"Bearer {self.client['TOKEN']}", str(number).encode())

    def stored(self) -> list[int]:
        return [int(line) for line in self.call("/all", f"Bearer {self.client['TOKEN']}", None).split()]


def upgrades(times: int, rate: float, pause_s: float, mlflow: bool, folder: Path) -> None:
    cordee("door", "start")
    (folder / "ledger.py").write_text(LEDGER)
    (folder / "ledger.toml").write_text(LEDGER_BLUEPRINT)
    now = cordee("deploy", "mlflow" if mlflow else str(folder / "ledger.toml"), "--door", "--json")
    service = (Mlflow if mlflow else Ledger)(now)
    found, written, waits, over = Counter(), [], [], threading.Event()

    def write(number: int) -> None:
        began = time.monotonic()
        try:
            service.write(number)
            written.append(number)
            found["answered"] += 1
        except OSError as error:
            found[repr(error)] += 1
        waits.append(time.monotonic() - began)

    def ask() -> None:
        began, threads = time.monotonic(), []
        while not over.is_set():
            threads.append(threading.Thread(target=write, args=(len(threads),), daemon=True))
            threads[-1].start()
            time.sleep(max(0.0, began + len(threads) / rate - time.monotonic()))
        for one in threads:
            one.join()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    took = []
    for _ in range(times):
        time.sleep(pause_s)
        began = time.monotonic()
        done = cordee("upgrade", now["name"], "--json")["services"][0]
        took.append(time.monotonic() - began)
        assert done["endpoints"][0]["url"] == service.url, "its address has changed"
    time.sleep(2)
    over.set()
    asking.join()
    stored = Counter(service.stored())
    print(
        f"{now['name']}: {times} upgrades of {statistics.median(took):.1f} s (median), {sum(found.values())} writes {dict(found)};"
        f" median {statistics.median(waits) * 1000:.0f} ms, longest {max(waits):.1f} s;"
        f" acknowledged and not stored: {len(set(written) - set(stored))}, stored twice: {sum(n > 1 for n in stored.values())}"
    )


class Redis:
    """A client of a few commands."""

    def __init__(self, port: int, password: str) -> None:
        self._link = socket.create_connection(("127.0.0.1", port), 10)
        self._lines = self._link.makefile("rb")
        self("AUTH", password)

    def __call__(self, *words: str) -> bytes:
        self._link.sendall(
            b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words)])
        )
        line = self._lines.readline()
        if line[:1] == b"$" and line[1:2] != b"-":
            line = self._lines.readline()
        if line[:1] in (b"-", b""):
            raise OSError(line)
        return line.strip()


def restarts(times: int) -> None:
    now = cordee("deploy", "redis", "--json")
    port = int(now["endpoints"][0]["url"].rpartition(":")[2])
    password = client_of(now)["REDISCLI_AUTH"]
    acknowledged, over = 0, threading.Event()

    def write() -> None:
        nonlocal acknowledged
        while not over.is_set():
            try:
                redis = Redis(port, password)
                while not over.is_set():
                    redis("SET", f"key-{acknowledged}", str(acknowledged))
                    acknowledged += 1
                    time.sleep(0.001)
            except OSError:
                time.sleep(0.01)

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    kinds, lost, took, moved = Counter(), 0, [], 0
    for _ in range(times):
        time.sleep(random.uniform(0.0, 1.0))
        kind = random.choice(["stopped", "killed", "all of it killed"])
        kinds[kind] += 1
        began = time.monotonic()
        if kind != "stopped":
            kill(now["run"], kind == "killed")
        cordee("stop", "redis", check=False)
        now = cordee("deploy", "redis", "--json")
        took.append(time.monotonic() - began)
        moved += int(now["endpoints"][0]["url"].rpartition(":")[2]) != port
        known, redis = acknowledged, Redis(port, password)
        lost += sum(
            redis("GET", f"key-{number}") != str(number).encode() for number in range(max(0, known - 1000), known)
        )
    over.set()
    writing.join()
    redis = Redis(port, password)
    gone = sum(redis("GET", f"key-{number}") != str(number).encode() for number in range(acknowledged))
    print(
        f"{times} restarts {dict(kinds)}, {statistics.median(took):.1f} s each (median): {acknowledged} writes acknowledged,"
        f" {lost + gone} of them lost; another port after {moved}"
    )


def kill(run: str, only_program: bool) -> None:
    """Kill the program of a run, or everything that belongs to the run."""
    program = json.loads(Path(run, "services", "redis.json").read_text())["pid"]
    for one in all_processes().values():
        try:
            words = Path(f"/proc/{one.pid}/cmdline").read_bytes().split(b"\0")
            env = Path(f"/proc/{one.pid}/environ").read_bytes()
        except OSError:
            continue
        ours = run.encode() in env or any(run.encode() in word for word in words)
        if one.pid == program or (ours and not only_program):
            try:
                os.kill(one.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def first_answer(times: int, podman: str) -> None:
    kinds = {"plain": plain, "cordee": lambda: deployed("mlflow")}
    if podman:
        kinds["podman"] = lambda: deployed(podman, "--target", "podman")
    seconds = {kind: [] for kind in kinds}
    for _ in range(times):
        for kind, measure in kinds.items():
            seconds[kind].append(measure())
    medians = {kind: statistics.median(values) for kind, values in seconds.items()}
    for kind, values in seconds.items():
        shown = ", ".join(f"{value:.1f}" for value in values)
        print(
            f"{kind}: {medians[kind]:.1f} s (median of {shown}), {medians[kind] / medians['plain']:.2f} times as long as plain"
        )


def plain() -> float:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = 20000 + probe.getsockname()[1] % 10000
        auth = Path(folder, "auth.ini")
        auth.write_text(
            f"[mlflow]\ndefault_permission = NO_PERMISSIONS\ndatabase_uri = sqlite:///{folder}/users.db\nadmin_username = admin\n"
            "admin_password = correct-horse-battery\nauthorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        )
        mlflow = str(Path(sys.executable).with_name("mlflow"))
        words = [
            mlflow,
            "server",
            "--app-name",
            "basic-auth",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--workers",
            "1",
        ]
        words += [
            "--backend-store-uri",
            f"sqlite:///{folder}/mlflow.db",
            "--artifacts-destination",
            f"{folder}/artifacts",
        ]
        env = {**os.environ, "MLFLOW_AUTH_CONFIG_PATH": str(auth), "MLFLOW_FLASK_SERVER_SECRET_KEY": "x" * 40}
        env |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        began = time.monotonic()
        server = subprocess.Popen(
            words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    return time.monotonic() - began
                except OSError:
                    time.sleep(0.1)
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def deployed(service: str, *more: str) -> float:
    began = time.monotonic()
    now = cordee("deploy", service, *more, "--json")
    took = time.monotonic() - began
    cordee("stop", now["name"], "--remove")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["upgrades", "restarts", "first-answer"])
    parser.add_argument("--times", type=int)
    parser.add_argument("--rate", type=float, default=40.0)
    parser.add_argument("--pause", type=float, default=2.0, metavar="SECONDS", help="between two upgrades")
    parser.add_argument("--mlflow", action="store_true")
    parser.add_argument("--podman", default="", metavar="BLUEPRINT")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended then, too
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["CORDEE_SERVICES"] = str(Path(folder, "services"))
        try:
            if given.what == "upgrades":
                upgrades(given.times or 10, given.rate, given.pause, given.mlflow, Path(folder))
            elif given.what == "restarts":
                restarts(given.times or 200)
            else:
                first_answer(given.times or 5, given.podman)
        finally:
            for one in cordee("status", "--json")["services"]:
                cordee("stop", one["name"], check=False)
            cordee("door", "stop", check=False)


if __name__ == "__main__":
    main()
