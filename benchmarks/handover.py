"""Requests and streams through the front door while one run of a service hands over to the next.

    python benchmarks/handover.py [--requests 1000] [--streams 200] [--sockets 500] [--on CLUSTER]

Prints one line for each measurement. A request has a number of its own, which the service writes down when it answers: what is
counted there and here tells what was lost and what was answered twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

PROGRAM = """
import asyncio, os, sys
port, host, token_file, seen = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
token = open(token_file).read().strip()
log = open(os.path.join(seen, str(os.getpid())), "a", buffering=1)
async def answer(reader, writer):
    try:
        path = (await reader.readline()).decode().split()[1]
        known = upgrade = False
        while line := (await reader.readline()).decode().strip():
            known |= line.lower() == "authorization: bearer " + token.lower()
            upgrade |= line.lower().startswith("upgrade:")
        if upgrade and known:
            writer.write(b"HTTP/1.1 101 Switching Protocols\\r\\nConnection: upgrade\\r\\nUpgrade: lines\\r\\n\\r\\n")
            while data := await reader.readline():
                writer.write(data)
            return
        body = b"ok" if path == "/health" or known else b""
        head = b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n" if body else b"HTTP/1.1 401 No\\r\\nConnection: close\\r\\n"
        if path.startswith("/stream") and known:
            log.write(path + "\\n")
            writer.write(head + b"Transfer-Encoding: chunked\\r\\n\\r\\n")
            for number in range(100):
                writer.write(b"2\\r\\nx\\n\\r\\n"); await writer.drain(); await asyncio.sleep(0.1)
            writer.write(b"0\\r\\n\\r\\n")
        else:
            if path.startswith("/request") and known:
                log.write(path + "\\n")
            writer.write(head + b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
        await writer.drain()
    except (OSError, IndexError):
        pass
    finally:
        writer.close()
async def main():
    server = await asyncio.start_server(answer, host, port, backlog=2000)
    await server.serve_forever()
asyncio.run(main())
"""
BLUEPRINT = """
schema = 1
name = "answers"
argv = ["{python}", "{program}", "{{port.http}}", "{{host}}", "{{secret.token}}", "{seen}"]
[ports.http]
port = 8080
[ready]
path = "/health"
every = "0.2s"
[closed]
path = "/request"
[secrets.token]
"""


def cordee(*words: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "cordee.faces.cli", "service", *words], stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit(f"cordee service {' '.join(words)}: exit code {done.returncode}")
    return json.loads(done.stdout) if done.stdout.startswith("{") else {}


async def ask(host: str, port: int, path: str, token: str, upgrade: bool = False):
    """Return the reader and writer of a connection on which the head of the answer was read, and its status."""
    reader, writer = await asyncio.open_connection(host, port)
    more = "Connection: Upgrade\r\nUpgrade: lines\r\n" if upgrade else "Connection: close\r\n"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{more}\r\n".encode())
    status = int((await reader.readline()).split()[1])
    while (await reader.readline()).strip():
        pass
    return reader, writer, status


async def one_request(host: str, port: int, path: str, token: str, found: Counter, seconds: list) -> None:
    began = time.monotonic()
    try:
        reader, writer, status = await ask(host, port, path, token)
        await reader.read()
        writer.close()
        found[status] += 1
    except (OSError, IndexError) as error:
        found[type(error).__name__] += 1
    seconds.append(time.monotonic() - began)


async def one_stream(host: str, port: int, path: str, token: str, found: Counter) -> None:
    try:
        reader, writer, status = await ask(host, port, path, token)
        data = await reader.read()
        writer.close()
        found["whole" if status == 200 and data.endswith(b"0\r\n\r\n") and data.count(b"x\n") == 100 else "cut"] += 1
    except (OSError, IndexError) as error:
        found[type(error).__name__] += 1


async def across(url: str, token: str, requests: int, streams: int) -> None:
    host, port = url.removeprefix("http://").split(":")
    found, flows, seconds = Counter(), Counter(), []
    flowing = [asyncio.ensure_future(one_stream(host, int(port), f"/stream/{n}", token, flows)) for n in range(streams)]
    await asyncio.sleep(1.0)
    over = asyncio.get_running_loop().run_in_executor(None, cordee, "handover", "answers", "--json", "--drain", "60s")
    began, asking = time.monotonic(), []
    for number in range(requests):  # over ten seconds, the hand-over among them
        asking.append(asyncio.ensure_future(one_request(host, int(port), f"/request/{number}", token, found, seconds)))
        await asyncio.sleep(max(0.0, began + (number + 1) * 10 / requests - time.monotonic()))
    await asyncio.gather(*asking, *flowing)
    await over
    print(
        f"hand-over: {requests} requests {dict(found)}, longest {max(seconds) * 1000:.0f} ms; {streams} streams {dict(flows)}"
    )


async def sockets(url: str, token: str, count: int) -> None:
    host, port = url.removeprefix("http://").split(":")
    links = [await ask(host, int(port), "/ws", token, upgrade=True) for _ in range(count)]
    began, right = time.monotonic(), 0
    for reader, writer, status in links:
        writer.write(b"hello\n")
        right += status == 101 and await asyncio.wait_for(reader.readline(), 30) == b"hello\n"
    print(f"sockets: {right} of {count} echo through the door, {1000 * (time.monotonic() - began) / count:.2f} ms each")
    for _, writer, _ in links:
        writer.close()


async def overhead(urls: dict[str, str], token: str) -> None:
    for name, url in urls.items():
        host, port = url.removeprefix("http://").split(":")
        found, seconds = Counter(), []
        for _ in range(500):
            await one_request(host, int(port), "/health", token, found, seconds)
        print(f"one after the other, {name}: median {statistics.median(seconds) * 1000:.2f} ms, {dict(found)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--sockets", type=int, default=500)
    parser.add_argument("--on", default="local")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="handover-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        os.environ["CORDEE_SERVICES"] = str(folder / "services")
        (folder / "seen").mkdir()
        (folder / "program.py").write_text(PROGRAM)
        text = BLUEPRINT.format(python=sys.executable, program=folder / "program.py", seen=folder / "seen")
        (folder / "answers.toml").write_text(text)
        try:
            cordee("door", "start")
            job = [] if options.on == "local" else ["--job", "vet.max_load=1000"]
            now = cordee("deploy", str(folder / "answers.toml"), "--door", "--on", options.on, *job, "--json")
            endpoint = now["endpoints"][0]
            token = Path(endpoint["token_file"]).read_text()
            asyncio.run(overhead({"behind the door": endpoint["behind"], "through it": endpoint["url"]}, token))
            asyncio.run(sockets(endpoint["url"], token, options.sockets))
            asyncio.run(across(endpoint["url"], token, options.requests, options.streams))
            answered = Counter(line for path in (folder / "seen").iterdir() for line in path.read_text().splitlines())
            twice = sum(1 for count in answered.values() if count > 1)
            print(
                f"the service answered {len(answered)} different requests and streams, {twice} of them twice, by {len(list((folder / 'seen').iterdir()))} runs"
            )
        finally:
            cordee("stop", "answers")
            cordee("door", "stop")


if __name__ == "__main__":
    main()
