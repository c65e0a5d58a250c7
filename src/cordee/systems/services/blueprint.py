"""The service blueprint: one TOML document that says what a service is, whatever it runs on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from cordee.core.documents.faults import ValuePlace, document_error, fault_error, validated
from cordee.core.documents.fields import Argv, CountOrZero, Document, Duration, Lines, Size, wrong
from cordee.core.documents.files import read_text, toml_values
from cordee.core.documents.toml_lines import Keys, find_line
from cordee.core.errors import UsageError
from cordee.core.findings import Finding
from cordee.core.secrets import masked_words
from cordee.core.words import did_you_mean
from cordee.job.command import script_of
from cordee.systems.services.node.texts import references

SCHEMA = 1
Target = Literal["process", "podman", "slurm", "kubernetes"]
TARGETS: tuple[Target, ...] = get_args(Target)
PROCESS, PODMAN, ALLOCATION, KUBERNETES = TARGETS
NAME_FORMS = "small letters, digits and -, at most 40, beginning with a letter and not ending with -"
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
_USER = re.compile(r"[A-Za-z0-9._@+-]{1,128}\Z")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,62}\Z")
_PATTERNS = {
    "name": (
        re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z"),
        "letters, digits and . _ -, beginning with a letter or digit",
    ),
    "path": (re.compile(r"/[^\0\n]*\Z"), "an absolute path without .."),
    "text": (re.compile(r"[^\0\n\r]{0,500}\Z"), "one line of at most 500 characters"),
}
# What `{kind.name}` may stand for, by the place where it stands. A secret's value never comes into an argument.
_EVERYWHERE = ("port", "volume", "file", "parameter", "secret", "host", "url", "name")
_IN_FILES = (*_EVERYWHERE, "value")
_IN_ARGV = (*_EVERYWHERE, "temp")


def _name(value: str) -> str:
    if not _NAME.match(value):
        raise wrong("is no name of a service", NAME_FORMS)
    return value


def _commands(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    raise wrong("is no list of commands", 'a list of commands, such as [["mkdir", "-p", "{volume.data}/a"]]')


def _key(value: str) -> str:
    if not _KEY.match(value):
        raise wrong(f"{value!r} cannot be a name here", "letters, digits and _, beginning with a letter")
    return value


ServiceName = Annotated[str, AfterValidator(_name)]
Key = Annotated[str, AfterValidator(_key)]
UrlPath = Annotated[str, Field(pattern=r"^/[!-~]*$")]


class ServicePort(Document):
    """`[ports.NAME]`: where the service listens."""

    port: Annotated[int, Field(ge=1, le=65535)]
    """Its number in a container; on a host a free one is taken instead, unless `deploy --port` names one."""
    protocol: Literal["http", "tcp"] = "http"
    """What is spoken there: with `http` the endpoint is a web address."""


class ServiceProbe(Document):
    """`[ready]` or `[live]`: what is asked, and how often."""

    port: Key | None = None
    """The port that is asked; without it the only one, or the first."""
    path: UrlPath | None = None
    """The path that is asked by GET; without it a connection is enough."""
    status: Annotated[int, Field(ge=100, le=599)] | None = None
    """The answer that is right; without it any from 200 to 399."""
    command: Argv | None = None
    """What is run instead, beside the service: it is well when that exits with 0."""
    every: Annotated[Duration, Field(ge=0.2)] = 1.0
    """The time between two questions."""
    timeout: Annotated[Duration, Field(gt=0)] = 5.0
    """How long an answer may take."""
    within: Annotated[Duration, Field(gt=0)] = 120.0
    """How long the service may take until it is ready."""
    failures: Annotated[int, Field(ge=1)] = 3
    """How many wrong answers in a row make the service be started again."""


class ClosedProbe(Document):
    """`[closed]`: what is asked without credentials, and must be refused before the service counts as ready."""

    port: Key | None = None
    """The port that is asked; without it the only one, or the first."""
    path: UrlPath = "/"
    """The path that is asked: one that shows data."""
    command: Argv | None = None
    """What is run instead, without credentials: it must not exit with 0."""


class ServiceVolume(Document):
    """`[volumes.NAME]`: data that outlives the program."""

    path: Annotated[str, Field(pattern=r"^/[!-~]*$")]
    """Where it lies in a container; on a host it is a folder of the service."""
    size: Size = 10 << 30
    """How much it may hold, where that can be asked for."""
    storage_class: str = Field(default="", alias="class")
    """The StorageClass on Kubernetes; empty: the cluster's default."""
    backup: bool = True
    """Whether `cordee service backup` takes it along."""
    shared: bool = False
    """Whether two runs of the service may have it open at once: then one is ready before the other ends, see hand-over."""


class ServiceSecret(Document):
    """`[secrets.NAME]`: a password or key. It is in a file of mode 0600, never in an argument or in Git."""

    source: str = Field(default="generated", alias="from")
    """`generated`, `file:PATH`, or `store:NAME/KEY` for a Secret that the Kubernetes cluster has already."""
    env: Key | None = None
    """The variable of the program that holds its value."""
    env_file: Key | None = None
    """The variable of the program that names its file."""
    kept: bool = False
    """Whether the program keeps it in its data: then `--rotate` needs a command in `setup` that changes it there, which containers do not run."""
    characters: Annotated[int, Field(ge=16, le=256)] = 40
    """How long a generated one is."""

    @field_validator("source")
    @classmethod
    def _known_source(cls, value: str) -> str:
        if value != "generated" and not re.fullmatch(r"file:/[^\0\n]+|store:[a-z0-9.-]+/[A-Za-z0-9._-]+", value):
            raise wrong("is no source of a secret", '"generated", "file:/absolute/path" or "store:NAME/KEY"')
        return value


class ServiceParameter(Document):
    """`[parameters.NAME]`: what a person may set when the service is deployed."""

    type: Literal["name", "path", "text", "integer", "boolean"] = "name"
    """What a value must be."""
    default: str | int | bool | None = None
    """The value where none is given; without it one must be given."""
    text: str = ""
    """What it is for."""


class ServiceNeed(Document):
    """`[need]`: what the service takes."""

    cpus: Annotated[int, Field(ge=1, le=1024)] = 1
    """Cores."""
    memory: Size = 1 << 30
    """Memory."""
    gpus: CountOrZero = 0
    """GPUs."""
    gpu_vendor: Literal["nvidia", "amd", "intel"] = "nvidia"
    """Whose GPUs; which resource and label of Kubernetes that is."""
    time: Annotated[Duration, Field(gt=0)] | None = None
    """How long one allocation lasts under a scheduler; without it what the partition gives."""


class ServiceDoor(Document):
    """`[door]`: what one client may do at the front door. A client is an address with its credentials."""

    requests_per_s: Annotated[float, Field(gt=0)] | None = None
    """How many requests in a second; more are refused with 429."""
    connections: Annotated[int, Field(ge=1)] | None = None
    """How many at once; more are refused with 429."""
    body: Size | None = None
    """The largest request; a larger one is refused with 413."""
    users: Lines = ()
    """Who is let in without a token, by the name that the centre's proxy in front of the door vouches for."""

    @field_validator("users")
    @classmethod
    def _plain_users(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _USER.match(name):
                raise wrong(f"{name!r} is no name of a user", "letters, digits and . _ @ + -, at most 128")
        return value


class ServiceBackup(Document):
    """`[backup]`: how its data is copied."""

    text: str = ""
    """How, in words, for who does it by hand."""
    before: Argv | None = None
    """A command that makes the volumes whole while the service runs; without it the service is stopped for the copy."""
    after: Argv | None = None
    """A command that makes it whole after a restore, run before the service starts."""


class Blueprint(Document):
    """A whole blueprint; `name`, and `argv` or `image`, are required."""

    schema_: Annotated[int, Field(alias="schema")] = SCHEMA
    """The version of this format."""
    name: ServiceName
    """The service's name, unless `deploy --name` gives another."""
    purpose: str = ""
    """What it is for, in one sentence."""
    cost: str = ""
    """What it takes: memory, disk, seconds until it is ready."""
    tested: Literal["run", "rendered"] = "rendered"
    """Whether the tests of Cordée run it, or only look at its manifests."""
    install: Lines = ()
    """Commands that install the program on this machine."""
    argv: Argv | None = None
    """The program and its arguments; no shell runs. What a relative path names lies beside the blueprint's file."""
    look_in: Lines = ()
    """Folders in which programs are looked for besides PATH, with wildcards."""
    setup: Annotated[tuple[Argv, ...], BeforeValidator(_commands)] = ()
    """Commands that run before the program, one after the other. `python` is the one that runs the program, where that is Python's."""
    image: str | None = None
    """The container image, by digest or tag: for podman and Kubernetes; or an EDF with `[build]`, FILE.toml from here, for Kubernetes."""
    image_argv: Argv | None = None
    """The program and its arguments in the image, behind the image's entrypoint; without it the image's own."""
    image_user: Annotated[int, Field(ge=1, le=65535)] = 1000
    """The user in the container; never root."""
    writable: Lines = ()
    """Folders of the image that the program writes and that need not last."""
    parameters: dict[Key, ServiceParameter] = Field(default_factory=dict)
    """What a person may set."""
    ports: dict[Key, ServicePort] = Field(default_factory=dict)
    """Where it listens; the first is its main endpoint."""
    ready: ServiceProbe = ServiceProbe.model_construct()
    """How one sees that it can be used."""
    live: ServiceProbe | None = None
    """How one sees that it must be started again."""
    closed: ClosedProbe | None = None
    """How one sees that it is closed to whoever has no credentials."""
    guard: Literal["own", "token", "none"] = "own"
    """Who asks for credentials: the program itself, Cordée's guard in its process by a token, or nobody."""
    volumes: dict[Key, ServiceVolume] = Field(default_factory=dict)
    """Its data."""
    secrets: dict[Key, ServiceSecret] = Field(default_factory=dict)
    """Its passwords and keys."""
    env: dict[Key, str] = Field(default_factory=dict)
    """Variables of the program."""
    files: dict[str, str] = Field(default_factory=dict)
    """Configuration files that are written before each start, mode 0600, by name."""
    client: dict[Key, str] = Field(default_factory=dict)
    """Variables by which clients find it, `{value.SECRET}` among them."""
    need: ServiceNeed = ServiceNeed.model_construct()
    """What it takes."""
    replicas: Annotated[int, Field(ge=1, le=64)] = 1
    """How many of it run at once; more than one only on Kubernetes."""
    idle: Annotated[Duration, Field(ge=1)] | None = None
    """After how long without a connection it is stopped; without it never."""
    stop: Annotated[Duration, Field(ge=0)] = 10.0
    """How long it may take to end."""
    stop_signal: Literal["SIGTERM", "SIGINT", "SIGQUIT"] = "SIGTERM"
    """The signal that asks it to end; in a container it is the image's own."""
    after: Lines = ()
    """Services that must be ready before it."""
    owner: str = ""
    """Who answers for it; without it who deploys it."""
    project: str = ""
    """What its hours are charged to."""
    backup: ServiceBackup = ServiceBackup.model_construct()
    """How its data is copied."""
    door: ServiceDoor = ServiceDoor.model_construct()
    """What one client may do at the front door."""

    @field_validator("schema_")
    @classmethod
    def _known_schema(cls, value: int) -> int:
        if value != SCHEMA:
            raise wrong(f"{value} is of another version of Cordée", f"schema = {SCHEMA}")
        return value

    @field_validator("files")
    @classmethod
    def _plain_files(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not _FILE.match(name):
                raise wrong(f"{name!r} is no name of a file", "a plain name without / such as auth.ini")
        return value

    @field_validator("after")
    @classmethod
    def _no_circle(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise wrong("names a service twice", "each name once")
        return tuple(_name(one) for one in value)

    @model_validator(mode="after")
    def _something_runs(self) -> Blueprint:
        if self.argv is None and self.image is None:
            raise wrong(
                "nothing runs: there is neither argv nor image", 'argv = "PROGRAM ...", or image = "NAME@sha256:..."'
            )
        if self.guard == "token" and "token" not in self.secrets:
            raise wrong('guard = "token" needs a secret of that name', "[secrets.token]")
        if self.name in self.after:
            raise wrong("is after itself", "names of other services")
        return self

    @property
    def has_one_writer(self) -> bool:
        """Whether only one run at a time may have its volumes open."""
        return any(not volume.shared for volume in self.volumes.values())

    @property
    def environment(self) -> str:
        """The EDF whose image it is; empty: the image is named."""
        return self.image if self.image and self.image.endswith(".toml") else ""

    @property
    def main_port(self) -> str | None:
        """The name of the first port."""
        return next(iter(self.ports), None)


@dataclass(frozen=True)
class LoadedBlueprint:
    """A valid blueprint.

    Attributes:
        blueprint: the frozen model.
        path: its file.
        text: as it was given.
        origin: whose catalogue it is from: `built-in`, `site`, `user`, or `file`.
        findings: what is worth saying although nothing is wrong.
        source: the file that a person wrote, where `path` is a copy; programs named by a relative path lie beside it.
    """

    blueprint: Blueprint
    path: Path
    text: str
    origin: str = "file"
    findings: tuple[Finding, ...] = ()
    source: Path = Path()

    def command(self, words: Sequence[str]) -> list[str]:
        """Return a command with what it names beside the blueprint by its whole path: the program, a script, words such as ./NAME."""
        folder = self.source.parent.absolute()
        script = script_of(tuple(words))
        return [
            os.path.normpath(str(folder).replace("{", "{{").replace("}", "}}") + f"/{word}")
            if word.startswith(("./", "../"))
            or (number == 0 and "/" in word and word[0] not in "/{")
            or (word == script and word[0] not in "/{" and (folder / word).is_file())
            else word
            for number, word in enumerate(words)
        ]

    def place(self, *keys: str) -> tuple[str, int | None]:
        """Return (file, line) of a key."""
        return str(self.path), find_line(self.text, keys)

    def finding(
        self,
        keys: tuple[str, ...],
        text: str,
        rule: str,
        next: str,
        severity: str = "error",
        given: Any = None,
        allowed: Any = None,
    ) -> Finding:
        """Return what is to be said of a key."""
        file, line = self.place(*keys)
        return Finding(text, severity, rule, file=file, line=line, given=given, allowed=allowed, next=next)


def load_blueprint(path: Path, origin: str = "file") -> LoadedBlueprint:
    """Return the blueprint in a file.

    Raises:
        DocumentError: it is missing, unreadable or wrong; all its faults are in `findings`, with their lines.
    """
    return read_blueprint(read_text(path, "a service blueprint"), path, origin)


def read_blueprint(text: str, path: Path, origin: str = "file", source: Path | None = None) -> LoadedBlueprint:
    """Return the blueprint that a text is.

    Args:
        source: the file that a person wrote; None: `path`.

    Raises:
        DocumentError: as `load_blueprint`.
    """
    values = toml_values(text, str(path))
    if isinstance(values.get("schema"), int) and values["schema"] > SCHEMA:  # its keys are not ours to judge
        raise fault_error(
            f"is of a newer version of Cordée: schema = {values['schema']}",
            "newer-schema",
            file=str(path),
            line=find_line(text, ("schema",)),
            given=values["schema"],
            allowed=f"schema = {SCHEMA}",
            next="use the newer Cordée, or write the blueprint for this one",
        )

    def place(keys: Keys) -> ValuePlace:
        return ValuePlace(str(path), find_line(text, keys) or 1)

    blueprint = validated(Blueprint, values, place)
    loaded = LoadedBlueprint(blueprint, path, text, origin, source=source or path)
    faults = [*_wrong_references(loaded), *_wrong_ports(loaded), *_wrong_parameters(loaded)]
    if faults:
        raise document_error(faults)
    return replace(loaded, findings=tuple(_remarks(loaded)))


def parameter_values(blueprint: Blueprint, given: Mapping[str, str]) -> dict[str, str]:
    """Return the value of each parameter as arguments have it.

    Raises:
        UsageError: one is unknown, missing, or not what its type allows.
    """
    for name in given:
        if name not in blueprint.parameters:
            raise UsageError(
                f"{blueprint.name} has no parameter {name}",
                given=name,
                allowed=list(blueprint.parameters) or "none",
                next=did_you_mean(name, list(blueprint.parameters), f"see `cordee service show {blueprint.name}`"),
            )
    values: dict[str, str] = {}
    for name, parameter in blueprint.parameters.items():
        value = given.get(name, parameter.default)
        if value is None:
            what = parameter.text or f"a value of type {parameter.type}"
            raise UsageError(f"the parameter {name} has no value", allowed=what, next=f"give --set {name}=VALUE")
        text = _parameter_text(parameter.type, value)
        if text is None:
            raise UsageError(
                f"the parameter {name} is not of its type",
                given=value,
                allowed=_allowed(parameter.type),
                next=f"change --set {name}",
            )
        values[name] = text
    return values


def _parameter_text(kind: str, value: str | int | bool) -> str | None:
    """Return a value as a text, None where its type does not allow it."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if kind == "boolean":
        return text if text in ("true", "false") else None
    if kind == "integer":
        return text if re.fullmatch(r"-?\d{1,18}", text) else None
    if kind == "path" and ".." in text.split("/"):
        return None
    return text if _PATTERNS[kind][0].match(text) else None


def _allowed(kind: str) -> str:
    return {"boolean": "true or false", "integer": "a whole number"}.get(kind) or _PATTERNS[kind][1]


def _wrong_references(loaded: LoadedBlueprint) -> Iterator[Finding]:
    """Yield what stands in braces and is not there, or may not stand at that place."""
    blueprint = loaded.blueprint
    there: dict[str, Mapping[str, Any]] = {
        "port": blueprint.ports,
        "url": blueprint.ports,
        "volume": blueprint.volumes,
        "file": blueprint.files,
        "parameter": blueprint.parameters,
        "secret": blueprint.secrets,
        "value": blueprint.secrets,
    }
    brace = "write {{ for a brace"
    for keys, text, kinds in _texts(blueprint):
        key = ".".join(keys)
        try:
            for kind, name in references(text):
                written = "{" + kind + (f".{name}" if name else "") + "}"
                if kind == "value" and kind not in kinds and name in blueprint.secrets:
                    text = f"{key} would show the secret {name} to everybody who can list processes"
                    what = "hand it over by a file or a variable"
                    allowed = "{secret." + name + "}, its file; or [secrets." + name + "] env"
                    yield loaded.finding(keys, text, "secret-in-argv", what, given=written, allowed=allowed)
                elif kind not in kinds or (kind in there) != bool(name) or (name and name not in there[kind]):
                    near = [f"{one}.{other}" for one in kinds for other in there.get(one, ())]
                    text, what = (
                        f"{key} names {written}, which is not there",
                        did_you_mean(f"{kind}.{name}", near, brace),
                    )
                    known = [*near, "host", "name"]
                    yield loaded.finding(keys, text, "unknown-name", what, given=written, allowed=known)
        except ValueError as error:
            text = f"{key} has braces that do not match: {error}".lower()
            yield loaded.finding(keys, text, "bad-value", brace, allowed="{port.NAME}")


def _texts(blueprint: Blueprint) -> Iterator[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """Yield each text that may have braces: its keys, itself, and what may stand in them."""
    commands: list[tuple[tuple[str, ...], tuple[str, ...] | None]] = [
        (("image_argv",), blueprint.image_argv),
        (("ready", "command"), blueprint.ready.command),
        (("live", "command"), blueprint.live.command if blueprint.live else None),
        (("closed", "command"), blueprint.closed.command if blueprint.closed else None),
        (("backup", "before"), blueprint.backup.before),
        (("backup", "after"), blueprint.backup.after),
        *((("setup",), words) for words in blueprint.setup),
    ]
    yield from ((("argv",), word, _IN_ARGV) for word in blueprint.argv or ())
    for keys, words in commands:
        yield from ((keys, word, _EVERYWHERE) for word in words or ())
    yield from ((("env", name), text, _IN_FILES) for name, text in blueprint.env.items())
    yield from ((("files", name), text, _IN_FILES) for name, text in blueprint.files.items())
    yield from ((("client", name), text, _IN_FILES) for name, text in blueprint.client.items())


def _wrong_ports(loaded: LoadedBlueprint) -> Iterator[Finding]:
    """Yield ports that two endpoints share, and probes of ports that are not there."""
    blueprint = loaded.blueprint
    seen: dict[int, str] = {}
    for name, port in blueprint.ports.items():
        if port.port in seen:
            text = f"ports.{name} and ports.{seen[port.port]} are the same port"
            yield loaded.finding(("ports", name, "port"), text, "same-port", "give each its own", given=port.port)
        seen.setdefault(port.port, name)
    probes: dict[str, ServiceProbe | ClosedProbe | None] = {
        "ready": blueprint.ready,
        "live": blueprint.live,
        "closed": blueprint.closed,
    }
    for table, probe in probes.items():
        if probe is not None and probe.port and probe.port not in blueprint.ports:
            text, known = f"[{table}] asks the port {probe.port}, which is not there", list(blueprint.ports)
            what = f"add [ports.{probe.port}]"
            yield loaded.finding((table, "port"), text, "unknown-name", what, given=probe.port, allowed=known)
        elif table != "live" and probe is not None and probe.command is None and not blueprint.ports:
            text = f"[{table}] has nothing to ask: there is no port"
            yield loaded.finding((table,), text, "no-port", "say where it listens", allowed="[ports.NAME], or command")


def _wrong_parameters(loaded: LoadedBlueprint) -> Iterator[Finding]:
    for name, parameter in loaded.blueprint.parameters.items():
        if parameter.default is not None and _parameter_text(parameter.type, parameter.default) is None:
            keys, text = ("parameters", name, "default"), f"parameters.{name}.default is not of its type"
            allowed = _allowed(parameter.type)
            yield loaded.finding(keys, text, "bad-value", "change it", given=parameter.default, allowed=allowed)


def _remarks(loaded: LoadedBlueprint) -> Iterator[Finding]:
    """Yield what makes a service unsafe or hard to keep, although it is allowed."""
    blueprint = loaded.blueprint
    if blueprint.image and not blueprint.environment and "@sha256:" not in blueprint.image:
        text, what = (
            "the image is named by a tag: another one may run tomorrow",
            "write the digest that the registry shows for the tag",
        )
        known = {"given": blueprint.image, "allowed": "NAME@sha256:DIGEST"}
        yield loaded.finding(("image",), text, "image-tag", what, "warn", **known)
    if blueprint.guard == "none" and blueprint.ports:
        text = "nobody asks for credentials: every user of the machine can open it"
        what = 'guard = "token" for a Python program, or its own password'
        yield loaded.finding(("guard",), text, "service-open", what, "warn")
    elif blueprint.ports and blueprint.closed is None:
        text = "nothing asks it without credentials: that it is closed is not checked"
        yield loaded.finding(("guard",), text, "closed-unchecked", "add [closed] path = a path that shows data", "warn")
    for name, words in (("argv", blueprint.argv or ()), ("image_argv", blueprint.image_argv or ())):
        if masked_words(words) != list(words):
            text = f"{name} holds what looks like a secret: everybody who can list processes sees it"
            yield loaded.finding((name,), text, "secret-in-argv", "make it one of [secrets]", "warn")
