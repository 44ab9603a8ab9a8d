"""The options of connectors to tables of others: DELTA and POSTGRES."""

from __future__ import annotations

from penstock.algebra.properties.secret_text import SecretText
from penstock.language.binder.statements.option_rules import Check, ConnectorRule, boolean, one_of, secrets, text, whole
from penstock.redaction import BLOT, redacted_text
from penstock.types import Interval


def _start(value: str) -> str:
    if value.lower() != "latest" and not value.isdecimal():
        raise ValueError("the number of a version, or 'latest'")
    return value.lower()


def _duration(value: str) -> str:
    found = Interval.parse(value)
    if found is None or found.amount <= 0:
        raise ValueError("a length of time such as '2 seconds'")
    return value


def _address(value: str) -> str:
    """Return the address of a server; a password in it is not written down."""
    if not value.startswith(("postgresql://", "postgres://")):
        raise ValueError("an address such as 'postgresql://user@host:5432/database'")
    shown = redacted_text(value)
    return value if shown == value else SecretText(shown, value)


def _password(value: str) -> str:
    return SecretText(BLOT, text(value))


_SERVER: dict[str, Check] = {
    "url": _address, "host": text, "port": whole, "dbname": text, "user": text, **secrets("password"),
    "password": _password, "sslmode": text, "sslrootcert": text, "timeout": _duration,
}  # fmt: skip

_OF_COMMITS: dict[str, Check] = {
    "starting": _start, "watch": boolean, "changes": boolean, "ignore_deletes": boolean, "skip_changes": boolean,
}  # fmt: skip
_OF_SNAPSHOTS: dict[str, Check] = {"version": whole, "timestamp": text}
_OF_POLLS: dict[str, Check] = {"version": text, "poll": _duration, "settle": _duration, "deleted": text}

DELTA_SOURCE = ConnectorRule(
    {"path": text, **_OF_SNAPSHOTS, **_OF_COMMITS},
    ("path",),
    timed=frozenset(_OF_COMMITS),
    static=frozenset(_OF_SNAPSHOTS),
)
DELTA_SINK = ConnectorRule(
    {"path": text, "mode": one_of("new", "append"), "partition_by": text, "key": text}, ("path",)
)
POSTGRES_SOURCE = ConnectorRule({**_SERVER, "table": text, "query": text, **_OF_POLLS}, timed=frozenset(_OF_POLLS))
POSTGRES_SINK = ConnectorRule({**_SERVER, "table": text, "mode": one_of("new", "append"), "key": text}, ("table",))
