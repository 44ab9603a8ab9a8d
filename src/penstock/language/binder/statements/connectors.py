"""Connectors as a script may name them: which options each takes, and what their values look like (P0208)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from penstock.errors import nearest
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.statements.option_rules import ConnectorRule
from penstock.language.binder.statements.option_rules import anything as _any
from penstock.language.binder.statements.option_rules import boolean as _boolean
from penstock.language.binder.statements.option_rules import character as _character
from penstock.language.binder.statements.option_rules import one_of as _one_of
from penstock.language.binder.statements.option_rules import text as _text
from penstock.language.binder.statements.option_rules import whole as _whole
from penstock.language.binder.statements.tables import DELTA_SINK, DELTA_SOURCE, POSTGRES_SINK, POSTGRES_SOURCE
from penstock.language.binder.statements.topics import KAFKA_SINK, KAFKA_SOURCE
from penstock.language.statements import Connector
from penstock.redaction import BLOT, is_secret, redacted_text

_CSV = {"header": _boolean, "delimiter": _character, "quote": _character, "null": _any}

SOURCES: Mapping[str, ConnectorRule] = {
    "FILES": ConnectorRule(
        {
            "path": _text,
            "format": _one_of("csv", "json", "parquet", "arrow"),
            "order": _one_of("path", "modified"),
            "watch": _boolean,
            **_CSV,
        },
        ("path",),
        frozenset(_CSV),
    ),
    "KAFKA": KAFKA_SOURCE,
    "MEMORY": ConnectorRule({}),
    "DELTA": DELTA_SOURCE,
    "POSTGRES": POSTGRES_SOURCE,
}
SINKS: Mapping[str, ConnectorRule] = {
    "FILES": ConnectorRule({"path": _text, "format": _one_of("csv", "json", "parquet")}, ("path",)),
    "KAFKA": KAFKA_SINK,
    "CONSOLE": ConnectorRule({"rows": _whole}),
    "MEMORY": ConnectorRule({}),
    "DELTA": DELTA_SINK,
    "POSTGRES": POSTGRES_SINK,
}
_SUFFIXES = {
    ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".arrow": "arrow",
    ".feather": "arrow",
}  # fmt: skip


def bind_connector(connector: Connector, is_source: bool, context: Context) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return (name in upper case, checked options with `format` filled in). Raises BindingFailed after P0208."""
    table = SOURCES if is_source else SINKS
    name = connector.name.text.upper()
    rule = table.get(name)
    if rule is None:
        role = "source" if is_source else "sink"
        other = SINKS if is_source else SOURCES
        message = f"{name} cannot be a {role}" if name in other else f"unknown connector {connector.name.text}"
        context.fail("P0208", message, connector.name.span, nearest(name, table))
    options: dict[str, str] = {}
    refused = False
    for option in connector.options:
        key, message, hint, span = option.key.key, "", None, option.key.span
        client = bool(rule.client) and key.startswith(rule.client)
        if key not in rule.options and not client:
            message = f"{name} has no option {option.key.text}"
            hint = nearest(key, rule.options) or f"{name} () has no options"
        elif key in options:
            message = f"option {key} occurs twice"
        elif client and is_secret(key):
            message, hint = (
                f"option {key} is a secret, which must not be stored in a run's files",
                f"{key}_env 'NAME' or {key}_file 'path'",
            )
        elif client:
            options[key] = option.value
        else:
            try:
                options[key] = rule.options[key](option.value)
            except ValueError as error:
                shown = BLOT if is_secret(key) else redacted_text(option.value)
                message, span = f"option {key} cannot be '{shown}': it is {error}", option.value_span
        if message:
            refused = True
            context.attempt(lambda: context.fail("P0208", message, span, hint))  # noqa: B023
    missing = [key for key in rule.required if key not in options and not refused]
    if missing:
        context.fail("P0208", f"{name} needs the option {missing[0]}", connector.span, f"{missing[0]} '...'")
    if refused:
        raise BindingFailed
    _fill_format(name, rule, options, connector, is_source, context)
    return name, tuple(options.items())


def _fill_format(
    name: str, rule: ConnectorRule, options: dict[str, str], connector: Connector, is_source: bool, context: Context
) -> None:
    """Add the format if the path implies it; reject csv's options with other formats."""
    if not {"format", "path"} <= rule.options.keys():
        return
    if "format" not in options:
        suffixes = PurePosixPath(options["path"]).suffixes
        found = [_SUFFIXES[s.lower()] for s in suffixes if s.lower() in _SUFFIXES]
        if not found and is_source:
            shown = "format 'csv', 'json', 'parquet' or 'arrow'"
            context.fail("P0208", f"{name} cannot derive the format from the path", connector.span, f"say {shown}")
        options["format"] = found[-1] if found else "csv"
        if not is_source and options["format"] == "arrow":
            context.fail("P0208", "results are written as csv, json or parquet", connector.span)
    foreign = [o for o in connector.options if o.key.key in rule.csv and options["format"] != "csv"]
    for option in foreign:
        message = f"option {option.key.key} is for csv, this is {options['format']}"
        context.attempt(lambda: context.fail("P0208", message, option.key.span))  # noqa: B023
    if foreign:
        raise BindingFailed


def options_fit(connector: Connector, is_timed: bool, context: Context) -> None:
    """Fail with P0208 for an option that does not apply to a source with, or without, a timestamp."""
    rule = SOURCES[connector.name.text.upper()]
    for option in connector.options:
        if option.key.key in (rule.static if is_timed else rule.timed):
            what = "a relation without TIMESTAMP BY" if is_timed else "a source with a timestamp"
            message = f"option {option.key.text} is for {what}"
            context.attempt(lambda: context.fail("P0208", message, option.key.span))  # noqa: B023
