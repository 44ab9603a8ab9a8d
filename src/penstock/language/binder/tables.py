"""The options of connectors to tables of others: DELTA."""

from __future__ import annotations

from penstock.language.binder.rules import Check, ConnectorRule, boolean, one_of, text


def _whole(value: str) -> str:
    if not value.isdecimal():
        raise ValueError("a whole number")
    return value


def _start(value: str) -> str:
    if value.lower() != "latest" and not value.isdecimal():
        raise ValueError("the number of a version, or 'latest'")
    return value.lower()


_OF_COMMITS: dict[str, Check] = {
    "starting": _start, "watch": boolean, "changes": boolean, "ignore_deletes": boolean, "skip_changes": boolean,
}  # fmt: skip
_OF_SNAPSHOTS: dict[str, Check] = {"version": _whole, "timestamp": text}

DELTA_SOURCE = ConnectorRule(
    {"path": text, **_OF_SNAPSHOTS, **_OF_COMMITS},
    ("path",),
    timed=frozenset(_OF_COMMITS),
    static=frozenset(_OF_SNAPSHOTS),
)
DELTA_SINK = ConnectorRule(
    {"path": text, "mode": one_of("new", "append"), "partition_by": text, "key": text}, ("path",)
)
