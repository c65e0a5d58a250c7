"""The two pages that need no script: where a token is asked for, and on from there."""

from __future__ import annotations

from html import escape

from cordee.errors import CordeeError

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{head}<title>Cordée</title>
<main>
{body}
</main>
</html>
"""


def sign_in_page(error: CordeeError) -> bytes:
    """Return a page that says why one may not look, and asks for a token where there are any."""
    lines = [f"<h1>Cordée</h1>\n<p>{escape(error.text)}.</p>"]
    if error.next:
        lines.append(f"<p>{escape(error.next[:1].upper() + error.next[1:])}.</p>")
    if error.allowed:
        lines.append(
            '<form action="/" method="get"><label for="token">Token</label>'
            ' <input id="token" name="token" type="password" autocomplete="current-password" required> <button>Look</button></form>'
        )
    return _PAGE.format(head="", body="\n".join(lines)).encode()


def moved_page(target: str) -> bytes:
    """Return a page that leads on to an address of this server."""
    where = escape(target, quote=True)
    head = f'<meta http-equiv="refresh" content="0;url={where}">\n'
    return _PAGE.format(head=head, body=f'<p><a href="{where}">Go on</a></p>').encode()
