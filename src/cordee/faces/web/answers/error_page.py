"""What a person sees whose browser opened an address under which there is nothing, or at which the server failed."""

from __future__ import annotations

from html import escape

from cordee.core.errors import CordeeError

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} - Cordée</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/style.css">
<script src="/static/theme.js"></script>
</head>
<body>
<header class="top"><a class="brand" href="/"><img src="/static/icon.svg" alt="" width="22" height="22"> Cordée</a></header>
<main class="empty">
{body}
<p><a href="/">All runs</a></p>
</main>
</body>
</html>
"""


def error_page(error: CordeeError) -> bytes:
    """Return a page that says what was asked for, what is wrong with it, and what to do."""
    title = _sentence(error.text)
    lines = [f"<h1>{title}</h1>"]
    if error.given:
        lines.append(f"<pre>{escape(str(error.given))}</pre>")
    if error.next:
        lines.append(f"<p>{_sentence(error.next)}.</p>")
    return _PAGE.format(title=title, body="\n".join(lines)).encode()


def _sentence(text: str) -> str:
    return escape(text[:1].upper() + text[1:])
