"""The options of KAFKA."""

from __future__ import annotations

from penstock.language.binder.statements.option_rules import Check, ConnectorRule, one_of, secrets, text, whole

_NEEDED = ("bootstrap", "topic", "format")
_SHARED: dict[str, Check] = {
    "bootstrap": text,
    "topic": text,
    "format": one_of("json", "avro", "arrow", "raw"),
    **secrets("schema"),
    "patience": whole,
}
KAFKA_SOURCE = ConnectorRule(
    {
        **_SHARED,
        "wire": one_of("none", "confluent"),
        "starting": text,
        "ending": text,
        "max_rows": whole,
        "on_data_loss": one_of("fail", "earliest"),
        "tombstones": one_of("reject", "null"),
        **dict.fromkeys(("key", "partition", "offset", "timestamp", "headers"), text),
    },
    _NEEDED,
    client="kafka.",
)
KAFKA_SINK = ConnectorRule({**_SHARED, "schema_id": whole, "key": text, "headers": text}, _NEEDED, client="kafka.")
