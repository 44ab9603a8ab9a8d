"""The options of KAFKA."""

from __future__ import annotations

from penstock.language.binder.rules import Check, ConnectorRule, one_of, secrets, text


def _count(value: str) -> str:
    if not value.isdecimal() or not value.isascii():
        raise ValueError("a whole number")
    return value


_NEEDED = ("bootstrap", "topic", "format")
_SHARED: dict[str, Check] = {
    "bootstrap": text,
    "topic": text,
    "format": one_of("json", "avro", "arrow", "raw"),
    **secrets("schema"),
    "patience": _count,
}
KAFKA_SOURCE = ConnectorRule(
    {
        **_SHARED,
        "wire": one_of("none", "confluent"),
        "starting": text,
        "ending": text,
        "max_rows": _count,
        "on_data_loss": one_of("fail", "earliest"),
        "tombstones": one_of("reject", "null"),
        **dict.fromkeys(("key", "partition", "offset", "timestamp", "headers"), text),
    },
    _NEEDED,
    client="kafka.",
)
KAFKA_SINK = ConnectorRule({**_SHARED, "schema_id": _count, "key": text, "headers": text}, _NEEDED, client="kafka.")
