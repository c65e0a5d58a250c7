"""What a run's ranks give to a library and offer on a port stands among its events, with where it came from."""

from __future__ import annotations

import pytest

import cordee
from cordee.telemetry.store.logged import LoggedFacts, logged_facts, logged_findings
from cordee.wire import pick_port

pytestmark = pytest.mark.usefixtures("real")

LIBRARY = """
class Run:
    _step = 0
    def log(self, data, step=None, commit=None):
        self._step += 1
"""
SCRIPT = """
import os, threading, time
from http.server import BaseHTTPRequestHandler, HTTPServer
import cordee
from wandb.sdk.wandb_run import Run

reads = 0

class Metrics(BaseHTTPRequestHandler):
    def do_GET(self):
        global reads
        reads += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"reads_total {reads}\\nqueue{{a=\\"b\\"}} 3\\nother 1\\n".encode())
    def log_message(self, *words):
        pass

server = HTTPServer(("127.0.0.1", PLACE), Metrics)
threading.Thread(target=server.serve_forever, daemon=True).start()
run, number = Run(), int(os.environ["CORDEE_ATTEMPT"])
for step in range(2000):
    run.log({"loss": step, "shared": 1}, step=step)
    cordee.log(step=step, shared=2)
    if reads >= 3 and step > 20:
        break
    time.sleep(0.05)
"""


def test_metrics_of_every_kind_are_among_a_runs_events(job, start, tmp_path):
    port = pick_port("127.0.0.1")
    toml = f"""[[metrics.scrape]]
url = "http://127.0.0.1:{{port}}/metrics"
port = {port}
per = "rank"
every = 1
metrics = ["reads*", "queue"]
[[metrics.scrape]]
url = "http://127.0.0.1:1/metrics"
every = 1
"""
    folder = job(SCRIPT.replace("PLACE", str(port)), toml, run="python train.py")
    (folder / "wandb" / "sdk").mkdir(parents=True)
    for name, text in (("__init__", ""), ("sdk/__init__", ""), ("sdk/wandb_run", LIBRARY)):
        (folder / "wandb" / f"{name}.py").write_text(text)
    run = start(folder, sampling__interval=0.5)
    assert run.wait_end().state == "finished"
    read = cordee.open_run(run.folder.root)
    events = read.events()
    assert set(events) == {"loss", "shared", "reads_per_second", 'queue{a="b"}'}
    assert events["loss"]["step"].tolist() == list(range(len(events["loss"])))
    assert events["shared"]["value"].tolist()[2:] == [2.0] * (len(events["shared"]) - 2), "cordee.log's are kept alone"
    assert set(events["reads_per_second"]["rank"].tolist()) == {0}
    known = logged_facts(read)
    assert known["loss"] == LoggedFacts("wandb")
    assert (known["shared"].also, "cordee.log" in known["shared"].source) == (("wandb",), True)
    assert known['queue{a="b"}'] == LoggedFacts("prometheus")
    assert known["reads_per_second"].unit == "1/s"
    assert logged_findings(read) == [], "the other endpoint has not failed for half a minute"
    assert (read.dropped_events, next(iter(run.state.ranks)).code) == (0, 0)
    before = {name: len(found) for name, found in events.items()}
    read.seal()
    assert {name: len(found) for name, found in cordee.open_run(run.folder.root).events().items()} == before


@pytest.mark.gate
def test_what_ranks_log_in_their_last_moment_is_stored_to_the_last_value(job, start):
    script = "import cordee\nfor step in range(18_000):\n    cordee.log(step, x=step)\n"
    run = start(job(script, "[need]\nranks_per_node = 2", run="python train.py"))
    assert run.wait_end().state == "finished"
    stored = cordee.open_run(run.folder.root)
    assert (len(stored.events("x")["x"]), stored.dropped_events) == (36_000, 0)
