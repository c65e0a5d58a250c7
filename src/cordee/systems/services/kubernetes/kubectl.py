"""Kubernetes' API server by `kubectl`: server-side apply as one field manager, and errors that say what to do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

from cordee.core.errors import CordeeError

MANAGER = "cordee"
_REQUEST_S, _CALL_S = 20, 300.0
_UNREACHABLE = re.compile(
    r"unable to connect to the server|connection refused|connection to the server|i/o timeout|no such host"
    r"|no route to host|context deadline exceeded|request canceled|TLS handshake|was refused|EOF$",
    re.IGNORECASE | re.MULTILINE,
)
_CONFLICT = re.compile(r'conflicts? with "([^"]+)"')
_FIELD = re.compile(r'(?:^- |conflict with "[^"]+"[^\n]*: )(\.\S+)', re.MULTILINE)

Object = dict[str, Any]


class ClusterError(CordeeError):
    """The API server is not there, or refuses."""

    kind = "kubernetes"


class FieldConflict(ClusterError):
    """Somebody else has set fields that are applied."""

    exit_code = 1


class Kubectl:
    """One API server. Each method raises ClusterError where it cannot be reached, or refuses.

    Args:
        context: of the kubeconfig; empty: the current one.
    """

    def __init__(self, context: str = "") -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise ClusterError(
                "there is no kubectl on this machine",
                allowed="kubectl 1.20 or newer",
                next="install it (Debian: kubernetes-client), or `cordee service render`",
            )
        self._words = [program, f"--request-timeout={_REQUEST_S}s", *(["--context", context] if context else [])]
        self._context = context

    def judged(self, documents: Sequence[Object], force: bool = False) -> list[Object]:
        """Return objects as the server would have them once they are applied; nothing is.

        Args:
            documents: the objects.
            force: whether fields that somebody else has set are taken over.

        Raises:
            FieldConflict: somebody else has set some of them.
        """
        return _objects(self._say([*_apply_words(force), "--dry-run=server", "-o", "json"], _lines(documents)))

    def apply(self, documents: Sequence[Object], force: bool = False) -> None:
        """Apply objects.

        Raises:
            As `judged`; says how many were applied before.
        """
        done = self._call([*_apply_words(force), "-o", "name"], _lines(documents))
        if done.returncode:
            error = self._error(done.stderr.strip(), "apply")
            applied = len(done.stdout.split())
            if applied:
                error.text = f"{applied} of {len(documents)} objects are applied, but: {error.text}"
            raise error

    def create(self, document: Object) -> None:
        """Create an object that is not there, such as a Secret: its values go through a pipe only."""
        self._say(["create", "-f", "-"], json.dumps(document))

    def get(self, kind: str, name: str, namespace: str) -> Object | None:
        """Return an object; None: there is none."""
        words = ["get", kind, name, "-o", "json", "--ignore-not-found"]
        found = _objects(self._say([*words, *(["-n", namespace] if namespace else [])]))
        return found[0] if found else None

    def there(self, documents: Sequence[Object]) -> list[Object]:
        """Return those objects of some documents that are there, as they are."""
        return _objects(self._say(["get", "-f", "-", "-o", "json", "--ignore-not-found"], _lines(documents)))

    def labelled(self, kinds: Sequence[str], namespace: str, label: str) -> list[Object]:
        """Return the objects of some kinds with a label."""
        words = ["get", ",".join(kinds), "-n", namespace, "-l", label, "-o", "json", "--ignore-not-found"]
        return _objects(self._say(words))

    def logs(self, deployment: str, namespace: str, most: int | None) -> list[str]:
        """Return the lines, the last `most` ones, that the pod of a Deployment has printed."""
        words = ["logs", f"deployment/{deployment}", "-n", namespace, f"--tail={-1 if most is None else most}"]
        return self._say(words).splitlines()

    def kinds(self) -> set[str]:
        """Return what kinds of objects the server knows, as `deployments.apps`."""
        return set(self._say(["api-resources", "-o", "name", "--verbs=list"]).split())

    def delete(self, kind: str, name: str, namespace: str) -> None:
        """Delete an object, and do not wait for what hangs on it."""
        words = ["delete", kind, name, "--ignore-not-found", "--wait=false"]
        self._say([*words, *(["-n", namespace] if namespace else [])])

    def _call(self, words: list[str], given: str = "") -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run([*self._words, *words], input=given, capture_output=True, text=True, timeout=_CALL_S)
        except subprocess.TimeoutExpired:
            raise ClusterError("kubectl gave no answer in time", given=" ".join(words[:3])) from None

    def _say(self, words: list[str], given: str = "") -> str:
        done = self._call(words, given)
        if done.returncode:
            raise self._error(done.stderr.strip(), words[0])
        return done.stdout

    def _error(self, said: str, verb: str) -> ClusterError:
        last = said.rpartition("\n")[2][:500]
        if _UNREACHABLE.search(said):
            return ClusterError(
                f"the API server cannot be reached: {last}",
                given=self._context or "the current context",
                next="`kubectl cluster-info` says more; what was applied stays, and the same command goes on with the rest",
            )
        managers = sorted(set(_CONFLICT.findall(said)))
        if managers:
            return FieldConflict(
                f"{', '.join(managers)} has set fields that this service sets",
                given=sorted(set(_FIELD.findall(said))) or last,
                next="--force-conflicts takes them over; or leave them to the other, and change the blueprint",
            )
        return ClusterError(f"kubectl {verb} failed: {said[:1500]}", given=self._context or "the current context")


def _apply_words(force: bool) -> list[str]:
    words = ["apply", "--server-side", f"--field-manager={MANAGER}", "-f", "-"]
    return [*words, "--force-conflicts"] if force else words


def _lines(documents: Iterable[Object]) -> str:
    return "\n".join(json.dumps(one) for one in documents)


def _objects(text: str) -> list[Object]:
    """Return the objects of one or more JSON documents, those of lists by themselves."""
    found: list[Object] = []
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        document, at = decoder.raw_decode(text, at)
        found += document["items"] if document.get("kind") == "List" else [document]
    return found
