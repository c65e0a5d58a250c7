"""The environment in which pages are rendered from templates, and the style that all of them have."""

from __future__ import annotations

from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cordee.core.draw.clean import clean


def page_environment(package: str) -> Environment:
    """Return what renders the templates in a package's folder: escaped, cut, and strict about what a template names.

    They may include `style.css.j2`, which lies beside this file.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("cordee.core.draw", ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_fit,
    )
    environment.filters["ticked"] = ticked
    return environment


def ticked(text: str) -> Markup:
    """Return a sentence, escaped, with what stands between back ticks as code."""
    pieces = [escape(_fit(piece)) for piece in text.split("`")]
    if len(pieces) % 2 == 0:
        return escape(_fit(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if at % 2 else piece for at, piece in enumerate(pieces)
    )


def _fit(value: Any) -> Any:
    """Return a value as it goes into the page; called by the template for each."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    text = clean(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text) - _LONGEST} more characters)"


_LONGEST = 2000
