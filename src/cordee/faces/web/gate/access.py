"""Who may look: the same user's processes on this machine, or whoever shows a token.

A token comes in the header Authorization, or once from the page that asks for it, in the body of a request, and becomes a
cookie: not the token itself, but a proof of it that holds for one client's address and for 30 days. In an address it is not
taken: proxies log addresses and browsers keep them.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from cordee.core.web.tokens import Token, find_token
from cordee.faces.web.answers.errors import Forbidden, NotAllowed

COOKIE_S = 30 * 86400
_NEEDED = "read"


@dataclass(frozen=True)
class Access:
    """What is needed to look.

    Attributes:
        tokens: those that are known; without any only this machine's users of `users` may look.
        users: user ids whose own connections on this machine need no token; empty: all need one.
    """

    tokens: Sequence[Token] = ()
    users: frozenset[int] = field(default_factory=frozenset)

    def by_header(self, authorization: str) -> None:
        """Check the header Authorization.

        Raises:
            NotAllowed: it holds no token that is known.
            Forbidden: its token does not allow to read.
        """
        kind, _, given = authorization.partition(" ")
        self._check(find_token(list(self.tokens), given.strip()) if kind.lower() == "bearer" else None)

    def by_form(self, form: bytes, client: str) -> str:
        """Return the value of a cookie for the token in a form.

        Raises:
            NotAllowed, Forbidden: as `by_header`.
        """
        given = dict(parse_qsl(form.decode("latin-1"))).get("token", "")
        token = self._check(find_token(list(self.tokens), given.strip()))
        expires = int(time.time()) + COOKIE_S
        return f"{token.name}:{expires}:{_proof(token, expires, client)}"

    def by_cookie(self, value: str, client: str) -> bool:
        """Return whether a cookie was made here, for this client, with a token that is still known."""
        name, _, rest = value.partition(":")
        moment, _, proof = rest.partition(":")
        if not moment.isdigit() or len(moment) > 12 or int(moment) < time.time():
            return False
        token = next((token for token in self.tokens if token.name == name and _NEEDED in token.scopes), None)
        return token is not None and hmac.compare_digest(
            _proof(token, int(moment), client), proof.encode(errors="replace").decode("latin-1")
        )

    def refusal(self) -> NotAllowed:
        """Return what is said to somebody who shows nothing."""
        if self.tokens:
            return NotAllowed(
                "a token is needed",
                allowed="the header Authorization: Bearer TOKEN; in a browser the address of this server with #token=TOKEN",
                next="ask whoever started this server for a token",
            )
        return NotAllowed(
            "only processes of the user who started this server may look, and this one cannot be told to be one",
            next="start `cordee serve` yourself, or have it started with --tokens FILE",
        )

    def _check(self, token: Token | None) -> Token:
        if token is None:
            raise NotAllowed(
                "this token is not known here",
                allowed="a token of the file that this server was started with",
                next="ask whoever started this server for a token",
            )
        if _NEEDED not in token.scopes:
            raise Forbidden(
                "this token does not allow to read", given=token.name, allowed="a token with the scope read"
            )
        return token


def cookies(header: str) -> Mapping[str, str]:
    """Return the cookies of a request by name."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return {name: value for name, _, value in pairs if name}


def cookie_name(port: int) -> str:
    """Return the name of the cookie of a server: servers on other ports of a host share its cookies."""
    return f"cordee_{port}"


def _proof(token: Token, expires: int, client: str) -> str:
    text = f"cordee serve\n{token.name}\n{expires}\n{client}"
    return hmac.new(token.secret.encode(), text.encode(), hashlib.sha256).hexdigest()
