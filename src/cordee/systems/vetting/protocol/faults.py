"""Collects what is wrong with a protocol, each fault with its line, and reads tables of declared parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cordee.core.documents.faults import shown
from cordee.core.documents.toml_lines import Keys
from cordee.core.documents.yaml_lines import YamlDocument
from cordee.core.findings import Finding
from cordee.core.words import did_you_mean
from cordee.systems.vetting.node.checks import Parameter
from cordee.systems.vetting.protocol.values import FORMS, TEXT_KINDS, Converter, WrongValue, convert


class Faults:
    """The faults (`errors`) and remarks (`notes`) of one document."""

    def __init__(self, document: YamlDocument) -> None:
        self._document = document
        self.errors: list[Finding] = []
        self.notes: list[Finding] = []

    def line(self, path: Keys) -> int | None:
        """Return the line of `path`, else that of its nearest parent."""
        return self._document.line(path)

    def add(self, path: Keys, text: str, *, rule: str = "bad-value", given: Any, allowed: Any, next: str) -> None:
        """Note a fault at `path`."""
        self.errors.append(
            Finding(
                text,
                "error",
                rule,
                file=str(self._document.path),
                line=self.line(path) or 1,
                given=shown(given),
                allowed=allowed,
                next=next,
            )
        )

    def note(self, path: Keys, text: str, rule: str, next: str | None = None) -> None:
        """Note something that is no fault."""
        self.notes.append(Finding(text, "info", rule, file=str(self._document.path), line=self.line(path), next=next))

    def table(self, path: Keys, values: Any, parameters: tuple[Parameter, ...]) -> dict[str, Any]:
        """Return the converted values of a table that may be missing."""
        if values is None:
            return {}
        if not isinstance(values, dict):
            allowed = f"a table of {', '.join(parameter.name for parameter in parameters)}"
            self.add(
                path,
                f"{path[-1]} is not a table",
                given=values,
                allowed=allowed,
                next="write `key: value` lines below it",
            )
            return {}
        return self.parameters(path, values, parameters)

    def parameters(
        self,
        path: Keys,
        values: dict[str, Any],
        parameters: tuple[Parameter, ...],
        *,
        common: tuple[Parameter, ...] = (),
        converters: Mapping[str, Converter] | None = None,
        whose: str = "the protocol",
    ) -> dict[str, Any]:
        """Return the converted values of `parameters` that are given or have a default.

        Args:
            path: of the table.
            values: the table; a value of null counts as not given.
            parameters: what it takes.
            common: what it takes beside them, and is read elsewhere.
            converters: other readings of some kinds.
            whose: for the words about a key that is not known.
        """
        own = {parameter.name: parameter for parameter in (*common, *parameters)}
        for key in values:
            if key not in own:
                self._unknown((*path, key), key, list(own), whose)
        found: dict[str, Any] = {}
        for parameter in parameters:
            value = values.get(parameter.name)
            if value is not None:
                converted = self._converted((*path, parameter.name), parameter, value, converters)
                if converted is not None:
                    found[parameter.name] = converted
            elif parameter.default is not None:
                found[parameter.name] = parameter.default
            elif parameter.needed:
                text = f"{parameter.name} is missing: {parameter.what}"
                allowed = _forms(parameter)
                what = f"add `{parameter.name}: ...`"
                self.add(path, text, rule="missing-key", given=None, allowed=allowed, next=what)
        return found

    def _converted(
        self, path: Keys, parameter: Parameter, value: Any, converters: Mapping[str, Converter] | None
    ) -> Any:
        if parameter.kind in TEXT_KINDS:
            value = self._document.as_texts(path, value)
        try:
            return convert(parameter, value, converters)
        except WrongValue as fault:
            self.add(
                path,
                f"{parameter.name} {fault.text}",
                given=value,
                allowed=fault.allowed,
                next=f"change {parameter.name}",
            )
            return None

    def _unknown(self, path: Keys, key: str, allowed: list[str], whose: str) -> None:
        hint = did_you_mean(key, allowed, f"remove {shown(key)}")
        text = f"{whose} takes no {shown(key)}"
        self.add(path, text, rule="unknown-key", given=key, allowed=allowed, next=hint)


def _forms(parameter: Parameter) -> str:
    return ", ".join(parameter.choices) or FORMS[parameter.kind]
