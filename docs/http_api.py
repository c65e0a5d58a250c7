"""Renders the page of the HTTP interface from its own OpenAPI document."""

from __future__ import annotations

from typing import Any

from cordee.faces.web.app import make_app
from cordee.faces.web.live import PING_S, POLL_S


def http_api() -> str:
    """Return the page: what holds for all routes, then each with its parameters and answer."""
    document = make_app([]).app.openapi()  # type: ignore[attr-defined]
    schemas = document["components"]["schemas"]
    parts = [_HEAD.format(poll_s=POLL_S, ping_s=PING_S)]
    for path, operations in document["paths"].items():
        parts.append(_route(path, operations["get"], schemas))
    return "\n".join(parts)


def _route(path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    lines = [f"## `{path}`", "", operation["description"].replace("\n", " "), ""]
    parameters = [_parameter(one) for one in operation.get("parameters", []) if one["name"] != "run"]
    if parameters:
        lines += ["| parameter | kind | default | |", "|---|---|---|---|", *parameters, ""]
    answer = operation["responses"]["200"]["content"].get("application/json", {}).get("schema", {})
    fields = _fields(answer, schemas)
    if fields:
        lines += ["| answer | kind | |", "|---|---|---|", *fields, ""]
    return "\n".join(lines)


def _parameter(one: dict[str, Any]) -> str:
    schema = one["schema"]
    default = "needed" if one.get("required") else schema.get("default", "")
    return f"| `{one['name']}` | {_kind(schema)} | {default} | {_cell(one.get('description', ''))} |"


def _fields(schema: dict[str, Any], schemas: dict[str, Any], above: str = "") -> list[str]:
    """Return the rows of an answer's fields, those of objects in it below them."""
    name = schema.get("$ref", "").rpartition("/")[2]
    found = []
    for field, about in schemas.get(name, {}).get("properties", {}).items():
        found.append(f"| `{above}{field}` | {_kind(about)} | {_cell(about.get('description', ''))} |")
        inner = about.get("items", about)
        inner = next((one for one in inner.get("anyOf", [inner]) if "$ref" in one), inner)
        if "$ref" in inner:
            found += _fields(inner, schemas, f"{above}{field}{'[]' if 'items' in about else ''}.")
    return found


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return "`frame`, `json`, `arrow`" if name == "Format" else "object"
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


_HEAD = """# The HTTP interface

`cordee serve` answers programs as it answers its own pages: all that they show comes from these addresses. They only read. The
same, for programs that make clients of it, is at `/openapi.json`.

```text
cordee serve --runs runs --port 8090
curl http://127.0.0.1:8090/api/runs
```

**Who may ask.** On this machine the user who started the server, by the kernel's table of sockets; nobody else. Others need a token:
`--tokens FILE` has lines `NAME read TOKEN` (mode 0600; `openssl rand -hex 24` makes one), and a request has the header
`Authorization: Bearer TOKEN`; a browser may come with `#token=TOKEN` behind the address once, which becomes a cookie. On an address that others can
reach, `--tokens` is needed. The server speaks plain HTTP: across a network put a proxy with TLS before it, or use `ssh -L
8090:localhost:8090 HOST`. It answers only to its own names (`--host NAME` adds one), never to pages of other sites, and
writes nothing into run folders.

**What it says.** Times are UTC epoch seconds, ratios 0-1, null is what is not known, as are infinities in JSON. Keys may be added.
An error has a status (400 a parameter is wrong, 401 no token, 403 another site or name, 404 not there, 409 the folder is damaged or newer,
503 ask again) and the body `{{"error": {{"kind", "text", "given", "allowed", "next"}}}}`. Every answer has an `ETag`; with
`If-None-Match` what has not changed is answered by 304, without reading.

**Tables of numbers** (`heat`, `bands`, `lines`, `logged/NAME`) come in three forms, by `format=` or by the header Accept:

| form | media type | |
|---|---|---|
| `json` | `application/json` | the default |
| `arrow` | `application/vnd.apache.arrow.stream` | a column for each array, a row for each device of a heat map; what is no column is JSON under the metadata key `facts` |
| `frame` | `application/vnd.cordee.frame` | `CoF1`, the header's length (u32, little-endian), the header (JSON: `arrays` with name, dtype `<f4` or `<f8`, shape, offset, and all other keys), from a multiple of 8 on the payload; NaN is missing |

**Live.** `/api/runs/RUN/live` is a stream of server-sent events. The folder is looked at every {poll_s} s while somebody listens; each
event carries what is newest, a slow client misses only what is out of date, and one that comes back with `Last-Event-ID` is told
what is new.

| event | says |
|---|---|
| `state` | the run's document has changed: `state`, `text`, `attempt`, `restarts`, `segments`, `step`, `total`, `version`, `now` |
| `samples` | by group, the time of the newest sample |
| `logged` | by name, `[step, time, mean over ranks]` of what was logged last |
| `logs` | `bytes`: how much the ranks have printed |
| `finding` | one finding, as in `findings` |
| `ping` | `now`; every {ping_s:.0f} s |
"""
