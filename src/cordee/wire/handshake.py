"""What both ends of a handshake agree on."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

PROTOCOL = 1
ROLES = ("agent", "client")
GREETING_S = 5.0


def prove(token: bytes, label: str, about: list[Any]) -> bytes:
    return hmac.new(token, json.dumps([label, *about]).encode(), hashlib.sha256).digest()


def is_proof(given: Any, expected: bytes) -> bool:
    return isinstance(given, str) and given.isascii() and hmac.compare_digest(given, expected.hex())


def is_text(value: Any, limit: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= limit


def version_text(version: Any) -> str:
    given = version if isinstance(version, int) and abs(version) < 1000 else "unknown"
    return f"the peer speaks protocol {given}, this end speaks protocol {PROTOCOL}"
