"""Objects as YAML that every version of the language reads the same."""

from __future__ import annotations

import re
from typing import Any

import yaml

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]{2,}\Z")


class _Dumper(yaml.SafeDumper):
    """YAML that every version of the language reads the same: `1e3`, `on` and `0o7` are texts only in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    block = "\n" in text and "\t" not in text
    plain = _PLAIN.match(text) and text.lower() not in ("true", "false", "yes", "null", "off", ".inf", ".nan")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if block else None if plain else '"')


_Dumper.add_representer(str, _text)


def yaml_text(documents: list[dict[str, Any]]) -> str:
    """Return objects as a stream of YAML documents."""
    return str(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, explicit_start=True, allow_unicode=True))
