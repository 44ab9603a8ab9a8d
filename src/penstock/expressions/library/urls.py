"""Functions of URLs, as Java's classes have them, which Spark calls."""

from __future__ import annotations

import re
from urllib.parse import quote_plus, unquote_plus

import pyarrow as pa

from penstock.expressions.coercion import STRING
from penstock.expressions.library.registry import Function, takes
from penstock.expressions.values.datum import Arguments, Datum, over_distinct

_URL = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?P<rest>(?://(?P<authority>[^/?#]*))?(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?)(?:#(?P<ref>.*))?",
    re.DOTALL,
)
#: What no URL has unless it is encoded, and a sign of percent without two digits behind it.
_ILLEGAL = re.compile(r'[\x00-\x20\x7f-\xa0<>"{}|\\^`]|%(?![0-9A-Fa-f]{2})')
_AUTHORITY = re.compile(
    r"(?:(?P<user>[^@]*)@)?(?P<host>\[[0-9A-Fa-f:.%]+\]|(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)*"
    r"(?:[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.?|\d{1,3}))(?::\d*)?"
)
_NO_CODE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def _encode(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def _decode(text: str) -> str:
    if _NO_CODE.search(text):
        raise ValueError("a percent without two digits")
    return unquote_plus(text)


def _parse(url: str, part: str, key: str | None = None) -> str | None:
    """Return a part of a URL; None for what is no URL, and for a part that it does not have."""
    found = _URL.fullmatch(url)
    if found is None or _ILLEGAL.search(url) or "#" in (found["ref"] or ""):
        return None
    if found["authority"] is None and found["scheme"] is not None and not found["path"].startswith("/"):
        # As in mailto:ada@example.org, which has no parts but these.
        return {"PROTOCOL": found["scheme"], "REF": found["ref"]}.get(part) if found["rest"] else None
    if found["authority"] == "" and not found["path"]:
        return None
    if part == "QUERY" and key is not None:
        parameter = re.search(rf"(?:&|^){re.escape(key)}=([^&]*)", found["query"] or "")
        return parameter[1] if parameter else None
    if key is not None:
        return None
    server = _AUTHORITY.fullmatch(found["authority"] or "")
    parts = {
        "HOST": server and server["host"],
        "PATH": found["path"],
        "QUERY": found["query"],
        "REF": found["ref"],
        "PROTOCOL": found["scheme"],
        "FILE": found["path"] + ("" if found["query"] is None else f"?{found['query']}"),
        "AUTHORITY": found["authority"] or None,
        "USERINFO": server and server["user"],
    }
    return parts.get(part)


def _parse_kernel(arguments: Arguments, type_: pa.DataType) -> Datum:
    return over_distinct(_parse, arguments, type_)


def _encode_kernel(arguments: Arguments, type_: pa.DataType) -> Datum:
    return over_distinct(_encode, arguments, type_)


def _decode_kernel(arguments: Arguments, type_: pa.DataType) -> Datum:
    return over_distinct(_decode, arguments, type_)


FUNCTIONS = (
    Function(
        "PARSE_URL", "url, part [, key]", takes(STRING, STRING), _parse_kernel,
        "a part of a URL: 'HOST', 'PATH', 'QUERY', 'REF', 'PROTOCOL', 'FILE', 'AUTHORITY' or 'USERINFO', or of 'QUERY'"
        " the value of a key; NULL where there is none",
    ),
    Function("URL_ENCODE", "string", takes(STRING, STRING), _encode_kernel, "as a part of a URL, a blank as `+`"),
    Function(
        "URL_DECODE", "string", takes(STRING, STRING), _decode_kernel, "the text that was encoded; NULL if malformed"
    ),
)  # fmt: skip
