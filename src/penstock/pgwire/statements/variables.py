"""The settings of a connection that PostgreSQL's clients read and set.

Only what this server can do is accepted: instants are UTC, texts UTF-8, a backslash is an ordinary character. What is
none of PostgreSQL's is a setting of the language, and goes to the server with the statements of the session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from penstock.pgwire.catalog.declarations.declared import PUBLIC
from penstock.pgwire.catalog.translation.functions import SERVER_VERSION, SERVER_VERSION_NUMBER
from penstock.pgwire.protocol.errors import INVALID_VALUE, WireError, unsupported

#: Reported to the client at the start and whenever they change.
REPORTED = (
    "application_name",
    "client_encoding",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "integer_datetimes",
    "is_superuser",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "default_transaction_read_only",
    "in_hot_standby",
)
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|h|d)?\s*")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
#: Seconds of the longest timeout, as in PostgreSQL.
_LONGEST = 2_147_483
_ISOLATION = ("read committed", "read uncommitted")
_LEVELS = ("debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error")
_DEFAULTS = {
    "application_name": "", "bytea_output": "hex", "client_encoding": "UTF8", "client_min_messages": "notice",
    "datestyle": "ISO, MDY", "default_transaction_isolation": "read committed", "default_transaction_read_only": "off",
    "extra_float_digits": "1", "idle_in_transaction_session_timeout": "0", "intervalstyle": "postgres",
    "lock_timeout": "0", "search_path": '"$user", public', "standard_conforming_strings": "on",
    "statement_timeout": "0", "timezone": "UTC", "transaction_isolation": "read committed",
    "transaction_read_only": "off", "row_security": "on", "synchronous_commit": "on", "xmloption": "content",
    "jit": "off", "check_function_bodies": "on", "escape_string_warning": "on", "backslash_quote": "safe_encoding",
    "array_nulls": "on",
}  # fmt: skip
_FIXED = {
    "integer_datetimes": "on",
    "is_superuser": "off",
    "server_encoding": "UTF8",
    "server_version": SERVER_VERSION,
    "server_version_num": str(SERVER_VERSION_NUMBER),
    "in_hot_standby": "off",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "lc_collate": "C",
    "lc_ctype": "C",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "block_size": "8192",
    "default_table_access_method": "heap",
}
_SHOWN = {name.lower(): name for name in REPORTED}
_SPELLED = {"on": "on", "true": "on", "yes": "on", "1": "on", "off": "off", "false": "off", "no": "off", "0": "off"}
_SAME = frozenset({"row_security", "synchronous_commit", "xmloption", "jit", "check_function_bodies",
                   "escape_string_warning", "backslash_quote", "array_nulls", "standard_conforming_strings",
                   "bytea_output", "intervalstyle", "idle_in_transaction_session_timeout"})  # fmt: skip


class Variables:
    """The settings of a connection. warn: is called with what a client should know."""

    def __init__(self, user: str, warn: Callable[[str], None]) -> None:
        self._values = dict(_DEFAULTS)
        self._fixed = {**_FIXED, "session_authorization": user}
        self._start: dict[str, str] = {}
        self.warn = warn

    def knows(self, name: str) -> bool:
        return name.lower() in self._values or name.lower() in self._fixed

    def get(self, name: str) -> str | None:
        """Return a setting, None for one that is not of PostgreSQL's."""
        key = name.lower()
        return self._fixed.get(key) or self._values.get(key)

    def all(self) -> Mapping[str, str]:
        return dict(sorted({**self._values, **self._fixed}.items()))

    def reported(self) -> dict[str, str]:
        """Return the variables that are reported to the client, with their values."""
        return {name: self.get(name) or "" for name in REPORTED}

    def begun(self) -> None:
        """Note what RESET goes back to: the settings of the client's first message."""
        self._start = dict(self._values)

    def reset(self, name: str | None = None) -> None:
        """Set one to what the client began with, None: all."""
        if name is None:
            self._values = dict(self._start)
        elif name.lower() in self._start:
            self._values[name.lower()] = self._start[name.lower()]
        else:
            raise WireError("55P02", f"{name} cannot be changed", code="P0104")

    def set(self, name: str, value: str) -> str:
        """Set one; return its value as it is shown. Raises WireError 22023, 0A000, 55P02."""
        key = name.lower()
        if key in self._fixed:
            raise WireError("55P02", f"{name} cannot be changed", code="P0104")
        self._values[key] = self._checked(key, value)
        return self._values[key]

    def _checked(self, key: str, value: str) -> str:
        word = " ".join(value.lower().split())
        if key in _SAME:
            if _SPELLED.get(word, word) != _SPELLED.get(_DEFAULTS[key], _DEFAULTS[key]):
                raise unsupported(f"{key} is {_DEFAULTS[key]} here and cannot be {value}")
            return _DEFAULTS[key]
        if key == "client_encoding":
            if word.strip("'\"").replace("-", "").replace("_", "") not in ("utf8", "unicode"):
                raise unsupported(f"texts are sent as UTF-8, not as {value}", "SET client_encoding TO 'UTF8'")
            return "UTF8"
        if key == "datestyle":
            if not re.fullmatch(r"(?:iso)?(?:,? ?(?:mdy|dmy|ymd))?|default", word):
                raise unsupported(f"dates are shown in the style ISO, not {value}")
            return "ISO, MDY"
        if key == "timezone":
            if word not in ("utc", "gmt", "etc/utc", "etc/gmt", "zulu", "default", "z", "0", "+00", "universal"):
                self.warn(f"instants are shown in UTC, with their offset; the time zone {value} is not applied")
            return "UTC"
        if key == "search_path":
            names = [one.strip().strip('"').lower() for one in value.split(",")]
            if PUBLIC not in names and word != "default":
                hint = "SET search_path TO public, and so in the options of the connection"
                raise unsupported(f"declarations lie in the schema public, which is not in {value}", hint)
            return _DEFAULTS[key] if word == "default" else value
        if key in ("transaction_isolation", "default_transaction_isolation"):
            if word not in _ISOLATION:
                hint = "every statement reads the state of one batch"
                raise unsupported(f"the isolation of transactions is read committed, not {value}", hint)
            return "read committed"
        if key in ("transaction_read_only", "default_transaction_read_only"):
            if word not in _SPELLED:
                raise WireError(INVALID_VALUE, f"{key} is on or off, not {value}", code="P0104")
            return _SPELLED[word]
        if key == "client_min_messages":
            if word not in _LEVELS:
                raise WireError(INVALID_VALUE, f"{key} is one of {', '.join(_LEVELS)}", code="P0104")
            return word
        if key == "extra_float_digits":
            if not re.fullmatch(r"[+-]?\d{1,4}", word) or not -15 <= int(word) <= 3:
                raise WireError(INVALID_VALUE, f"{key} is between -15 and 3", code="P0104")
            return str(int(word))
        if key in ("statement_timeout", "lock_timeout"):
            if seconds_of(value) > _LONGEST:
                raise WireError(INVALID_VALUE, f"{key} is at most {_LONGEST:,} seconds", code="P0104")
            return value.strip()
        return value

    @property
    def timeout(self) -> float:
        """Return the seconds after which a statement ends, 0 for no limit of the client's."""
        return seconds_of(self._values["statement_timeout"])

    @property
    def is_read_only(self) -> bool:
        """Return whether a transaction that begins now may change nothing."""
        return self._values["default_transaction_read_only"] == "on"

    def sends(self, level: str) -> bool:
        """Return whether `client_min_messages` lets notices of a level through."""
        return _LEVELS.index(level.lower()) >= _LEVELS.index(self._values["client_min_messages"])


def seconds_of(text: str, unit: str = "ms") -> float:
    """Return a length of time as PostgreSQL's settings have it, in seconds. unit: of a number alone. Raises WireError
    22023."""
    match = _DURATION.fullmatch(text.lower().replace("seconds", "s").replace("second", "s").replace("minutes", "min"))
    if match is None:
        raise WireError(
            INVALID_VALUE, f"{text!r} is no length of time", "such as 500, '500 ms' or '10 s'", code="P0104"
        )
    return float(match[1]) * _SECONDS[match[2] or unit]


def shown_name(name: str) -> str:
    """Return the name of a setting as PostgreSQL writes it."""
    return _SHOWN.get(name.lower(), name.lower())
