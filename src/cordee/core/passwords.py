"""Passwords as files of this field carry them: values of what is called one, and what programs are given as one.

A password has no form. So its name decides first, then whether its value may be one at that place: in code only what stands in
quotes is a value; elsewhere names and words are values, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cordee.core.secret_forms import ASSIGNED, Key, all_keys_in, apart, is_placeholder, is_random, lowered

_PASSWORD = r"pass(?:word|wort|wd|phrase|code)?|pwd|pw"
_OTHER = r"secret(?:[_-]?key)?|token|(?:api|access|account|auth|encryption|master|private|signing)[_-]?key"
_BEHIND = r"(?:[_-]?(?:[0-9]{1,3}|base|value|default|prod|production|dev|staging|plain|admin|root|user|db)){0,2}"


def _quoted(name: str) -> str:
    """Return a pattern of a text in quotes of any kind, as the group `name`."""
    quote = f"(?P=quote_{name})"
    return rf"[rbfu]{{0,2}}(?P<quote_{name}>\\?[\"'`])(?P<{name}>(?:(?!{quote})[^\n]){{4,200}}){quote}"


_BARE = r"(?P<bare>[^\s\"'`<>,;&|(){}\\]{4,200})(?=(?P<after>[^\n]{0,40}))"
# How a name gets its value: `x = "v"`, `x: v`, `x: str = "v"`; `get("x", "v")`, `"--x", default="v"`; `--x v`; a list of
# variables (`name: X`, `value: v`); XML. One search finds all.
_ASSIGNED = re.compile(
    (
        rf"(?P<word>(?:{_PASSWORD}|{_OTHER}){_BEHIND})(?:"
        rf"\\?[\"']?[\])]?[ \t]{{0,40}}(?P<sign>:=|=>|=(?!=)|:(?!:))[ \t]{{0,8}}(?:(?:optional\[)?str\]?(?:[ \t]?\|[ \t]?none)?[ \t]?=[ \t]?)?(?:{_quoted('quoted')}|{_BARE})"
        rf"|\\?[\"'],\s{{0,40}}(?:[^\"'()\n]{{0,80}}?default[ \t]?=[ \t]?)?{_quoted('second')}"
        rf"|[\"']?,?\s{{1,40}}(?:-\s)?[\"']?value[\"']?:\s{{0,4}}(?:{_quoted('listed')}|(?P<listed_bare>[^\s\"',{{}}]{{4,200}}))"
        rf"|[ \t]{{1,4}}(?:{_quoted('quoted_option')}|(?P<option>[^\s\"'`<>;&|()]{{4,200}}))"
        rf"|(?:</name>\s{{0,20}}<value)?>(?P<xml>[^<>\"'\s]{{4,200}})</|[\"'] value=[\"'](?P<attribute>[^<>\"'\s]{{4,200}})[\"']"
        r")"
    )
)
# What programs are given: curl, mysql, sshpass, redis-cli, openssl, and what is piped into one that asks.
_GIVEN = re.compile(
    r"curl\b[^\n|;]{0,200}?[ \t](?:-u|--user)[ \t]?[\"']?[^\s:\"']{1,80}:(?P<curl>[^\s\"']{4,100})"
    r"|(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|;]{0,200}?[ \t]-p[\"']?(?P<mysql>[^\s\"'-][^\s\"']{3,100})"
    r"|(?:sshpass|docker[ \t]+login|podman[ \t]+login|helm[ \t]+registry[ \t]+login)\b[^\n|;]{0,200}?[ \t]-p[ \t]?[\"']?(?P<login>[^\s\"'-][^\s\"']{3,100})"
    r"|redis-cli\b[^\n|;]{0,200}?[ \t]-a[ \t]+[\"']?(?P<redis>[^\s\"']{4,100})"
    r"|(?:pass|passin|passout)[ \t]+[\"']?pass:(?P<openssl>[^\s\"']{4,100})"
    r"|echo[ \t]+(?:-n[ \t]+)?[\"']?(?P<echo>[^\s\"'|]{4,100})[\"']?[ \t]*\|[ \t]*(?:sudo[ \t]+-S|kinit|[^\n|]{0,80}--password-stdin|[^\n|]{0,80}login)"
    r"|echo[ \t]+[\"']?[\w.-]{1,40}:(?P<chpasswd>[^\s\"'|]{4,100})[\"']?[ \t]*\|[ \t]*(?:sudo[ \t]+)?chpasswd"
    r"|(?:machine[ \t]+\S{1,100}|login[ \t]+\S{1,100})\s{1,9}password[ \t]+(?P<netrc>\S{4,100})"
    r"|\"username\"\s{0,9}:\s{0,9}\"[^\"\n]{1,80}\",\s{0,9}\"key\"\s{0,9}:\s{0,9}\"(?P<kaggle>[0-9a-f]{32})\""
    r"|(?:auth|HTTPBasicAuth)[ \t]?=?[ \t]?\([ \t]?\\?[\"'][^\"'\n]{1,80}\\?[\"'],[ \t]?\\?[\"'](?P<auth>[^\"'\n\\]{4,100})\\?[\"']"
)
_PROGRAMS = (
    "curl",
    "mysql",
    "mariadb",
    "sshpass",
    "login",
    "redis-cli",
    "pass:",
    "echo",
    "auth",
    "Auth",
    "machine",
    '"username"',
)
# Files of tools whose lines have no names.
_PGPASS = re.compile(r"^[\w.*-]+:(?:\d{1,5}|\*):[\w.*-]+:[\w.*-]+:(?P<value>[^\n:]{4,100})$", re.M)
_MARKS = ("pass", "pw", "secret", "token", "key")
_CODE = re.compile(
    r"^[ \t]*(?:def \w+\(|class \w+[(:]|import \w|from [\w.]+ import |#include\b|package \w|func \w|function \w+\(|(?:const|let|var) \w+ ?=|(?:public|private|static) \w|fn \w|use \w+::)",
    re.M,
)
_IS_SETTING = re.compile(r"[ \t]*(?:\\n)?[\"']?,?[ \t]*(?:[#;].*)?\Z")
_SETS = re.compile(
    r"(?:\A|[\n\"'])[ \t]*(?:- |export |set |env |arg |declare -x |local |readonly )?[ \t]*[\"']?\Z", re.I
)
_IN_ADDRESS = re.compile(r"&|;[ \t]?[\w .-]+=|[ \t]+[\w.-]+=")
_LISTED = re.compile(r"\bname[\"']?\s{0,4}[:=]\s{0,4}[\"']?\Z", re.I)
_WORDS = re.compile(r"[A-Za-z]+(?:[-_.][A-Za-z]+)*\Z")
_EXPRESSION = re.compile(r"\\[dwsDWS]|\.\*|\.\+|\[\^?a-z|\(\?|\{\d*,\d*\}")
_ALGORITHM = re.compile(
    r"(?:sha|md|utf|base|aes|rsa|des|hmac|field|arg|col|word|line|step|iso|python|model|version|v)[-_]?[0-9]{1,4}\Z",
    re.I,
)
# Of language models, of programming languages, and of what is no secret itself.
_NO_SECRET_TOKEN = frozenset(
    (
        *(
            "pad",
            "unk",
            "bos",
            "eos",
            "cls",
            "sep",
            "mask",
            "boi",
            "eoi",
            "fim",
            "prefix",
            "suffix",
            "image",
            "video",
            "audio",
        ),
        *(
            "special",
            "stop",
            "start",
            "end",
            "begin",
            "additional",
            "first",
            "last",
            "new",
            "word",
            "sub",
            "system",
            "user",
        ),
        *(
            "assistant",
            "per",
            "max",
            "min",
            "num",
            "by",
            "of",
            "hash",
            "csrf",
            "next",
            "prev",
            "page",
            "continuation",
            "sync",
        ),
        *(
            "request",
            "action",
            "update",
            "input",
            "output",
            "idempotency",
            "verification",
            "cancellation",
            "lock",
            "color",
        ),
    )
)
_PATH = re.compile(
    r"(?:[~.]{0,2}/|[a-z]:\\|file:|\w+://)|.*\.(?:txt|json|pem|key|ya?ml|toml|py|sh|crt|env|ini|cfg|conf|html|md)\Z",
    re.I,
)
_PUT_IN = re.compile(
    r"\A\$|\$[({]|\{\{|\{%|%[({]|%s|\{[\w.:!\[\]'\"]*\}|<[^>]*>?|\A[@!&*]\w|\A%\w+%\Z|\A#\{|ENC\[|\A\$(?:2[aby]|5|6|y|apr1|argon2\w*|pbkdf2\S*)\$|\A(?:argon2|pbkdf2|bcrypt|sha[0-9]+|vault|secret|env|ref|op|ssm|arn|gcp|kms)[:.$/]"
)
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*\Z")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:[.:]{1,2}[A-Za-z_]\w*)*\Z")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\Z")
_NO_PASSWORD = re.compile(
    r"passw|passphrase|passwd|\Apass\Z|secret|token|user|\Aadmin|\Aroot\Z|\Atest|\Anone|\Anull|\Atrue|\Afalse|\Anil\Z|undefined|default|string|required|optional|enter|insert|\Atodo|\Atbd|foo|\Abar\Z|baz|hidden|masked|redact|\Aunset|empty|prompt|value|\Ahere|\Ayour|\Amy[_-]|"
    r"change|replace|sample|example|dummy|\Afake|keyring|keychain|\Aldap|kerberos|\Asso\Z|\Abasic\Z|bearer|oauth|disabled|enabled|\Aforgot|invalid|wrong|incorrect|missing|login|getpass|\binput\b|stdin|scott|tiger|guest|hunter2\Z.*|correct.{0,3}password|qwerty|letmein|12345|abc123|\*{3}|x{4}|\.\.\.",
    re.I,
)
_PARTS = re.compile("[A-Z]?[a-z]+|[A-Z]+")
_VALUES = ("quoted", "bare", "second", "listed", "listed_bare", "quoted_option", "option", "xml", "attribute")
_LONGEST_NAME = 60
_LEAST, _LEAST_OTHER = 6, 8
_LEAST_CHANGES = 0.4


def keys_and_passwords_in(text: str) -> list[Key]:
    """Return the keys in a file, by their form or as they are called so, and its passwords, as they stand there: each once."""
    known = all_keys_in(text)
    return sorted([*known, *apart(passwords_in(text), known)], key=lambda key: key.begin)


def passwords_in(text: str) -> Iterator[Key]:
    """Yield the passwords in a text, and shorter tokens and secrets than those that look random; what is in doubt is none.

    Takes time in proportion to the text, whatever it holds.
    """
    if _PGPASS.match(text):
        yield from (Key(ASSIGNED, *found.span("value")) for found in _PGPASS.finditer(text))
    for found in _GIVEN.finditer(text) if any(map(text.__contains__, _PROGRAMS)) else ():
        group = found.lastgroup or ""
        if _is_password(found[group], 1):
            yield Key(ASSIGNED, *found.span(group))
    lower, at = lowered(text), 0
    if not any(map(lower.__contains__, _MARKS)):
        return
    code = not text.startswith("#!") and bool(_CODE.search(text))
    while assigned := _ASSIGNED.search(lower, at):
        key = _assigned(text, assigned, code)
        if key is not None:
            yield key
        # What is no value of this name may have a name of its own in it.
        at = assigned.end() if key is not None else assigned.end("word")


def _assigned(text: str, found: re.Match[str], code: bool) -> Key | None:
    """Return what a search has found, if the name is a secret's and its value is one."""
    start, end = found.span("word")
    begin = start
    while begin > 0 and start - begin < _LONGEST_NAME and (text[begin - 1].isalnum() or text[begin - 1] in "_.-"):
        begin -= 1
    prefix, word = text[begin:start], text[start:end]
    certain = word.lower().startswith("p") and not word.lower().startswith("private")
    inside = prefix[-1:].isalpha() and (prefix[-1].isupper() or word[0].islower())
    if inside and not word.lower().startswith(("passw", "passphrase", "passcode")):
        return None
    if not certain and not _NO_SECRET_TOKEN.isdisjoint(map(str.lower, _PARTS.findall(prefix))):
        return None
    group = next(name for name in _VALUES if found[name] is not None)
    value = text[found.start(group) : found.end(group)]
    ahead = text[max(0, begin - 24) : begin]
    words: int | None = 0
    if group == "bare":
        words = _words_of_bare(prefix + word, value, text[end : found.start(group)], ahead, found["after"], code)
    elif group == "option":
        words = 0 if prefix.startswith("-") else 1 if ahead.endswith("ENV ") else None
    elif group in ("listed", "listed_bare"):
        words = 1 if _LISTED.search(ahead) else None
    elif group == "second":
        between = text[end : found.start(group)]
        stands = prefix.startswith("-") or (ahead.endswith(('"', "'")) and "\n" not in between)
        named = _WORDS.match(value) or (_NAME.match(value) and _changes(value) < 3)
        words = 0 if stands and not named else None
    elif group == "quoted_option":
        words = 0 if prefix.startswith("-") else None
    elif not code:
        words = 1 if (prefix + word).isupper() else 3
    if words is None or not (_is_password(value, words) if certain else _is_secret(value)):
        return None
    return Key(ASSIGNED, *found.span(group))


def _words_of_bare(name: str, value: str, sign: str, ahead: str, after: str, code: bool) -> int | None:
    """Return of how many words a value without quotes may consist alone (0: of none), None where none can stand.

    Args:
        name: what it is called.
        value: that is judged.
        sign: what stands between both.
        ahead, after: what stands on the line before the name and behind the value.
        code: whether the text is a program, in which a bare value is a name.
    """
    glued = sign in ("=", '"=', "'=")
    exported = glued and "export " in ahead
    in_address = glued and (
        ahead[-1:] in ("?", "&")
        or (ahead[-1:] == ";" and bool(_IS_SETTING.match(after)))
        or bool(_IN_ADDRESS.match(after))
    )
    if in_address or (glued and name.startswith("-")):
        return None if "badge.svg" in ahead else 0
    if code:
        return 0 if exported and not _NAME.match(value) else None
    if sign.endswith(": ") and ahead[-1:] in ("{", " ") and after[:1] in (",", "}"):
        return 0
    if exported or (glued and name.isupper() and after[:1] in ("", " ", "\t", ";", "\\", ",")):
        return 1
    return (1 if glued else 3) if _SETS.search(ahead) and _IS_SETTING.match(after) else None


def _is_password(value: str, words: int = 0) -> bool:
    """Return whether a value may be a password: no place, no name of another, nothing that stands for one.

    Args:
        value: that is judged.
        words: of how many words one may consist alone; 0: of none.
    """
    if not _is_value(value) or len(value) < _LEAST or _ALGORITHM.match(value):
        return False
    if _WORDS.match(value):
        mixed = bool(re.search("[a-z][A-Z][a-z]*[A-Z]|[A-Z][a-z]+[A-Z]{2}", value))
        return mixed or bool(words and len(re.split("[-_.]", value)) >= words)
    return words == 1 or not value.isdigit()


def _is_secret(value: str) -> bool:
    """Return whether what is called a token, a secret or a key looks random."""
    if not _is_value(value) or len(value) < _LEAST_OTHER:
        return False
    if is_random(value):
        return True
    mixed = all(any(map(kind, value)) for kind in (str.islower, str.isupper, str.isdigit))
    return mixed and _changes(value) >= _LEAST_CHANGES * (len(value) - 1)


def _changes(value: str) -> int:
    """Return how often another kind of letter follows."""
    kinds = [(one.islower(), one.isupper(), one.isdigit()) for one in value]
    return sum(one != other for one, other in zip(kinds, kinds[1:]))


def _is_value(value: str) -> bool:
    stands_for = _PUT_IN.search(value) or _PATH.match(value) or _VARIABLE.match(value) or _NO_PASSWORD.search(value)
    if stands_for or is_placeholder(value) or _EXPRESSION.search(value) or len(set(value)) < 4:
        return False
    return not re.search(r"\s", value) and (re.search("[.:]", value) is None or not _DOTTED.match(value))
