"""Removal of secrets from text for people: options, addresses and scripts with passwords and tokens.

Contract: a *secret* is an option whose key is one of a secret (`is_secret`), the password in an address such as
`kafka://user:password@host`, and a parameter of an address or of a connection string with such a name. The place of a
secret (`password_env 'NAME'`, `password_file 'path'`) is none. All code that prints, logs or writes options or a part
of a script uses this module; the secret itself reaches its connector unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

#: Replaces a secret.
BLOT = "***"

_WORDS = (
    r"[\w.\-]*(?:passw(?:or)?d|passphrase|passcode|pwd|secret|token|credential|jaas|"
    r"(?:api|access|private|account|signing|encryption|secret)[_.\-]?key)[\w.\-]*"
)
#: The last word of a key that only names the place of a secret.
_ELSEWHERE = ("_env", "_file", ".location", "_location", ".type", "_type")
_KEY = re.compile(_WORDS, re.IGNORECASE)
#: `password 'text'` of a script, `"password": "text"` and `'password': 'text'` of a mapping, in one group the secret.
_QUOTED = re.compile(
    rf"(?<![\w.\-])[\"'`]?(?P<key>{_WORDS})[\"'`]?\s*[=:,]?\s*(?:'(?P<one>(?:[^'\\]|\\.|'')*)(?:'|$)"
    r'|"(?P<two>(?:[^"\\]|\\.)*)(?:"|$))',
    re.IGNORECASE,
)
#: `password=text` of an address or a connection string.
_PARAMETER = re.compile(rf"(?<![\w.\-])(?P<key>{_WORDS})=(?P<one>[^\s&;,'\"<>()]+)", re.IGNORECASE)
#: The same in an address, where the key itself is encoded.
_ENCODED = re.compile(r"[?&](?P<key>[\w.\-]*%[\w.\-%]*)=(?P<one>[^\s&;'\"<>()]+)", re.IGNORECASE)
#: Of the scheme its last letter alone: a search for all of it, from every word on, is quadratic in a dotted text.
_ADDRESS = re.compile(r"(?<=[a-z0-9+.\-])://[^\s/:@'\"]*:(?P<one>[^\r\n/'\"]+)@", re.IGNORECASE)
_BEARER = re.compile(r"\b(?:bearer|basic)\s+(?P<one>[A-Za-z0-9+/._~\-]{8,}=*)", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Return whether the value of an option called `key` must not be shown."""
    return _KEY.fullmatch(key) is not None and not key.lower().endswith(_ELSEWHERE)


def redacted(options: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return options without their secrets."""
    return tuple((key, BLOT if is_secret(key) and value else redacted_text(value)) for key, value in options)


def redacted_text(text: str) -> str:
    """Return a text (a message, a line of a script, an address, a connection string) without the secrets in it."""
    return _blotted(text, _secrets(text))


def redacted_line(text: str, column: int, length: int) -> tuple[str, int, int]:
    """Return a line of a script with a mark under it (1-based column, length), without secrets."""
    spans = _secrets(text)
    start, end = (_moved(place, spans) for place in (column - 1, column - 1 + length))
    return _blotted(text, spans), start + 1, max(1, end - start)


def _secrets(text: str) -> list[tuple[int, int]]:
    """Return the secrets in `text` from left to right, none within another."""
    found = sorted(_found(text))
    kept: list[tuple[int, int]] = []
    for start, end in found:
        if kept and start <= kept[-1][1]:
            kept[-1] = (kept[-1][0], max(end, kept[-1][1]))
        else:
            kept.append((start, end))
    return kept


def _found(text: str) -> Iterator[tuple[int, int]]:
    for pattern in (_QUOTED, _PARAMETER, _ENCODED, _ADDRESS, _BEARER):
        for match in pattern.finditer(text):
            named = match.groupdict()
            group = "two" if named.get("two") is not None else "one"
            if is_secret(unquote(named.get("key") or "password")) and match[group]:
                yield match.span(group)


def _blotted(text: str, spans: list[tuple[int, int]]) -> str:
    parts, place = [], 0
    for start, end in spans:
        parts += [text[place:start], BLOT]
        place = end
    return "".join([*parts, text[place:]])


def _moved(place: int, spans: list[tuple[int, int]]) -> int:
    """Return where a position of the text is after redaction; positions within a secret move to its end or its
    beginning."""
    moved = place
    for start, end in spans:
        if place >= end:
            moved += len(BLOT) - (end - start)
        elif place > start:
            moved -= place - start
    return moved
