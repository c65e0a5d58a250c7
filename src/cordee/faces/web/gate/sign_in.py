"""The page where a token is asked for.

A token in a link stands behind `#`, which browsers send to nobody: the page's script takes it out of the address and sends it
as the form would, in the body of a request.
"""

from __future__ import annotations

from functools import cache
from html import escape
from pathlib import Path

from cordee.core.errors import CordeeError

SIGN_IN = "/sign-in"
SCRIPT = "/static/signin.js"
# The form's request says which page it comes from, which "no-referrer" of all other answers would keep from the gate.
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="same-origin">
<title>Cordée</title>
<main>
{body}
</main>
<script src="{script}"></script>
</html>
"""


def sign_in_page(error: CordeeError) -> bytes:
    """Return a page that says why one may not look, and asks for a token where there are any."""
    said = [text[:1].upper() + text[1:] for text in (error.text, error.next) if text]
    lines = ["<h1>Cordée</h1>", *(f"<p>{escape(text)}.</p>" for text in said)]
    if error.allowed:
        lines.append(
            f'<form action="{SIGN_IN}" method="post"><label for="token">Token</label>'
            ' <input id="token" name="token" type="password" autocomplete="current-password" required>'
            " <button>Sign in</button></form>"
        )
    return _PAGE.format(body="\n".join(lines), script=SCRIPT).encode()


@cache
def sign_in_script() -> bytes:
    """Return the script of that page, which is given to everybody."""
    return (Path(__file__).parents[1] / SCRIPT[1:]).read_bytes()
