"""Text files: what loading them runs, what they have loaders run, and the keys that stand in them."""

from __future__ import annotations

import json
import re
from typing import Any, Iterator
from urllib.parse import unquote

from cordee.core.passwords import keys_and_passwords_in
from cordee.core.secret_forms import ASSIGNED
from cordee.systems.scan.node.formats.models import keras_document_sights, leads_out, template_sights
from cordee.systems.scan.node.formats.pickle_globals import PickleGlobals
from cordee.systems.scan.node.verdict import Sight

LIMIT_BYTES = 32 << 20
_YAML = re.compile(
    r"(?:^%TAG[ \t]+\S+[ \t]+(?P<kind>\S*2002:python)|(?:^[ \t]*(?:-[ \t]+|[\w\"' .-]{1,80}:[ \t]+){0,4}"
    r"|[{\[,][ \t]*(?:[\w\"' .-]{1,80}:[ \t]+)?)(?P<tag>!(?:!?|<\S{0,40}2002:)python/(?:object|name|module)[:/][\w./:]*))",
    re.M,
)
_IN_TEMPLATE = re.compile(r"\{[{%](?P<inside>.{1,2000}?)[%}]\}", re.S)
_REACHES_OUT = re.compile(r"(?:\.|\[[\"'])__\w+__|\|\s*attr\b|\\x5f\\x5f|\b(?:lipsum|cycler|joiner)\s*(?:\[|\.\s*_)")
# What Hydra, Lightning's command line and Python's logging call. `()` is such a key where a key can stand, and not where Python calls.
_CALLS = ("_target_", "class_path", "()")
_TARGET = re.compile(
    r"(?m:_target_|class_path|(?:[\"'{,]|^[ \t]*(?:-[ \t]+)*)\(\))[\"']?\s*[:=]\s*[\"']?(?P<module>\w+(?:\.\w+)*)\.(?P<name>\w+)"
)
# `logging.config.fileConfig` evaluates these.
_LOGGING_ARGS = re.compile(
    r"^[ \t]*args\s*=\s*\([^\n]*(?:\b(?:open|exec|eval|compile|system|popen|getattr|__import__)\s*\(|\b__\w+__\b)", re.M
)
# Python that a loader finds in a model's or data set's repository: torch.hub's, and that of `datasets`.
_LOADED = re.compile(
    r"^(?:dependencies[ \t]*=[ \t]*\[|class[ \t]+\w+\((?:datasets\.)?(?:GeneratorBased|ArrowBased|Beam)Builder\b)", re.M
)
_LOADER_MODULE = re.compile(r"^[ \t]+loader_module:[ \t]*(?!mlflow\b)(?P<module>[\w.]+)", re.M)
_SCRIPT_FILES = re.compile(r"\b(?:torch|ops\.aten)\.(?:save|from_file)\(")
_TRUST = re.compile(
    r"^[^#\n]*\btrust_remote_code\s*[=:]\s*[\"']?(?:True|true)\b|--trust[-_]remote[-_]code\b(?!\s*[=\s]\s*(?:False|false))",
    re.M,
)
# A .pth file of site-packages: paths, and lines that begin with `import`, which Python runs whenever it starts.
_PTH_LINE = re.compile(r"import[ \t][^\n]*|#[^\n]*|[^\s'\"(){};=,]*")
_PTH_RUNS = re.compile(
    r"^import[ \t][^\n]*;[^\n]*(?:\b(?:exec|eval|compile|open|remove|unlink|rmtree|system|popen|urlopen|urlretrieve|b64decode)\s*\(|subprocess|socket|marshal)",
    re.M,
)
_ENTITY = re.compile(r"<!ENTITY\s+%?\s*[\w.-]+\s+(?:SYSTEM|PUBLIC\s+[\"'][^\"']*[\"'])\s+[\"'](?:\w+:|/|\.\.)")
# Said where it is given or set; a sentence may well speak of it.
_UNSAFE_LOAD = re.compile(
    r"^(?:[^#\n]*[({[,.;\-])?[ \t]*(?:weights_only\s*=|[\"']weights_only[\"']\s*[:,\]=]+)\s*False\b", re.M
)


def secret_sights(text: str, where: str) -> Iterator[Sight]:
    """Yield the keys that stand in a text, and what has the name of a key and looks like one. None is repeated."""
    line, at = 1, 0
    for key in keys_and_passwords_in(text):
        line, at = line + text.count("\n", at, key.begin), key.begin
        place = _at_line(line, where)
        if key.kind == ASSIGNED:
            said = "what stands here is called a password or a key, and looks like one"
            yield Sight("secret-assigned", "warn", said, place)
        else:
            yield Sight(f"secret-{key.kind}", "block", f"a key of the kind {key.kind} stands here", place)


def text_sights(text: str, where: str) -> Iterator[Sight]:
    """Yield what stands in a text, whatever its file is called."""
    begin = text.lstrip()[:1]
    if begin in ("{", "["):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if document is not None:
            yield from _json_sights(document, where)
            return
    found = _PTH_RUNS.search(text) if "import" in text and len(text) < 1 << 20 else None
    if found and all(_PTH_LINE.fullmatch(line.strip()) for line in text.splitlines()):
        said = "in a .pth file of site-packages this runs whenever Python starts"
        yield Sight("model-pth-code", "block", said, _line(text, found.start(), where))
    if "<!ENTITY" in text and _ENTITY.search(text):
        yield Sight("model-xml-entity", "unknown", "XML that reads another file when it is parsed", where)
    tag = _YAML.search(unquote(text)) if "!" in text or "%TAG" in text else None
    if tag:
        named = (tag["tag"] or tag["kind"])[:80]
        yield Sight("model-yaml-object", "block", f"YAML that makes Python objects: {named}", where)
    for one in _IN_TEMPLATE.finditer(text) if "{{" in text or "{%" in text else ():
        if _REACHES_OUT.search(one["inside"]):
            yield from template_sights(one["inside"], _line(text, one.start(), where))
    for one in _TARGET.finditer(text) if any(call in text for call in _CALLS) else ():
        if PickleGlobals().severity(one["module"], one["name"]) == "block":
            named = f"{one['module']}.{one['name']}"
            line = _line(text, one.start(), where)
            yield Sight(
                "model-config-target", "block", f"a configuration has {named} called, by which it can do anything", line
            )
    found = _LOGGING_ARGS.search(text) if "[loggers]" in text else None
    if found:
        line = _line(text, found.start(), where)
        yield Sight("model-config-target", "block", "a configuration of logging has code evaluated", line)
    found = _SCRIPT_FILES.search(text) if "code/" in where else None
    if found:
        said = "TorchScript that reads or writes files of whoever loads it"
        yield Sight("model-torchscript", "block", said, _line(text, found.start(), where))
    for mark, pattern, rule, words in (
        ("Builder", _LOADED, "model-remote-code", "a script that loading the data set by its name runs"),
        ("dependencies", _LOADED, "model-remote-code", "a script that torch.hub runs"),
        ("loader_module", _LOADER_MODULE, "model-remote-code", "MLflow imports a module that the model brings along"),
        ("trust", _TRUST, "model-remote-code", "trust_remote_code runs Python that a model's repository brings along"),
        (
            "weights_only",
            _UNSAFE_LOAD,
            "model-unsafe-load",
            "weights_only=False lets a checkpoint run whatever it names",
        ),
    ):
        found = pattern.search(text) if mark in text else None
        if found:
            yield Sight(rule, "warn", words, _line(text, found.start(), where))


def _json_sights(document: Any, where: str) -> Iterator[Sight]:
    yield from _target_sights(document, where)
    if isinstance(document, dict) and "__loader__" in document:
        yield from _skops_sights(document, where)
    for key, named in _brought_along(document):
        shown = ", ".join(sorted(named)[:4])
        text = f"{key} names Python that the repository brings along: {shown}"
        yield Sight("model-remote-code", "warn", text, where)
    if not isinstance(document, dict):
        return
    parts = document.get("weight_map")
    for part in set(map(str, parts.values())) if isinstance(parts, dict) else ():
        if leads_out(part):
            said = f"it has weights read from outside of its folder: {part[:120]!r}"
            yield Sight("file-leads-out", "block", said, where)
    template = document.get("chat_template")
    for one in [template] if isinstance(template, str) else template if isinstance(template, list) else []:
        told = one.get("template") if isinstance(one, dict) else one
        if isinstance(told, str):
            yield from template_sights(told, where)
    if "class_name" in document and "config" in document:
        yield from keras_document_sights(document, where)


def _brought_along(document: Any) -> Iterator[tuple[str, set[str]]]:
    """Yield what has a library import Python of the model's own repository: the key, and the classes or modules."""
    if isinstance(document, list):  # modules.json of sentence-transformers
        kinds = {
            str(one.get("type", "")) for one in document if isinstance(one, dict) and {"idx", "path"} <= one.keys()
        }
        own = {kind[:80] for kind in kinds if kind and not kind.startswith("sentence_transformers.")}
        if own:
            yield "type", own
        return
    if not isinstance(document, dict):
        return
    code = document.get("auto_map")
    if isinstance(code, dict) and code:
        yield "auto_map", {_first(value) for value in code.values()}
    pipelines = document.get("custom_pipelines")
    if isinstance(pipelines, dict) and pipelines:
        made = {one.get("impl", name) if isinstance(one, dict) else one for name, one in pipelines.items()}
        yield "custom_pipelines", {str(one)[:80] for one in made}
    made_by = document.get("_class_name")
    if "_diffusers_version" in document and isinstance(made_by, list):  # a name of its own has a module before it
        yield "_class_name", {_first(made_by)}


def _skops_sights(document: Any, where: str) -> Iterator[Sight]:
    """Yield what a model of skops looks up: the class of each node, and the functions and methods that some name beside it."""
    left, told = [document], set[str]()
    while left:
        one = left.pop()
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        if not isinstance(one, dict) or "__loader__" not in one:
            continue
        inside = one.get("content")
        content = inside if isinstance(inside, dict) else {}
        held = content.get("obj")
        of = held if isinstance(held, dict) else {}
        named = [(one.get("__module__"), one.get("__class__")), (content.get("module_path"), content.get("function"))]
        named += [(of.get("__module__"), content.get("func"))] if isinstance(content.get("func"), str) else []
        for module, name in named:
            full = f"{module}.{name}"
            severity = PickleGlobals().severity(str(module), str(name)) if module and name else "clean"
            if severity != "clean" and full not in told:
                told.add(full)
                rule = "model-pickle-call" if severity == "block" else "model-pickle-name"
                by = "by which it can do anything" if severity == "block" else "which is not known to be harmless"
                yield Sight(rule, severity, f"loading it looks up {full[:120]}, {by}", where)


def _target_sights(document: Any, where: str) -> Iterator[Sight]:
    """Yield what Hydra and its like would call, wherever it stands."""
    left = [document]
    while left:
        one = left.pop()
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        for target in map(one.get, _CALLS) if isinstance(one, dict) else ():
            if not isinstance(target, str):
                continue
            module, _, name = target.rpartition(".")
            if PickleGlobals().severity(module, name) == "block":
                said = f"a configuration has {target[:80]} called, by which it can do anything"
                yield Sight("model-config-target", "block", said, where)


def _first(value: Any) -> str:
    return str(value[0] if isinstance(value, list) and value else value)[:80]


def _line(text: str, at: int, where: str) -> str:
    return _at_line(text.count("\n", 0, at) + 1, where)


def _at_line(line: int, where: str) -> str:
    return f"{where}:{line}" if where else f"line {line}"
