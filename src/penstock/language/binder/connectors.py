"""Connectors as a script may name them: which options each takes, and what their values look like (P0208)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from penstock.errors import nearest
from penstock.language.binder.context import Context, Refused
from penstock.language.statements import Connector
from penstock.redaction import BLOT, is_secret, redacted_text

Check = Callable[[str], str]


def _text(value: str) -> str:
    if not value:
        raise ValueError("a text that is not empty")
    return value


def _any(value: str) -> str:
    return value


def _boolean(value: str) -> str:
    if value.lower() not in ("true", "false"):
        raise ValueError("'true' or 'false'")
    return value.lower()


def _one_of(*choices: str) -> Check:
    def check(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(" or ".join(f"'{c}'" for c in choices))
        return value.lower()

    return check


def _character(value: str) -> str:
    value = {"\\t": "\t"}.get(value, value)
    if len(value) != 1 or value in "\r\n" or ord(value) > 127:
        raise ValueError("one ASCII character")
    return value


def secrets(*keys: str) -> dict[str, Check]:
    """The options of a connector's secrets: each in the script itself, in the environment, or in a file."""
    return {name: _text for key in keys for name in (key, f"{key}_env", f"{key}_file")}


@dataclass(frozen=True)
class ConnectorRule:
    """options: key -> check, which gives the normal form or raises ValueError with what a value looks like; required:
    keys without which there is no connector; csv: keys that only csv files have."""

    options: Mapping[str, Check]
    required: tuple[str, ...] = ()
    csv: frozenset[str] = frozenset()


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
    "MEMORY": ConnectorRule({}),
}
SINKS: Mapping[str, ConnectorRule] = {
    "FILES": ConnectorRule({"path": _text, "format": _one_of("csv", "json", "parquet")}, ("path",)),
    "CONSOLE": ConnectorRule({}),
    "MEMORY": ConnectorRule({}),
}
_SUFFIXES = {
    ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".arrow": "arrow",
    ".feather": "arrow",
}  # fmt: skip


def bind_connector(connector: Connector, is_source: bool, context: Context) -> tuple[str, tuple[tuple[str, str], ...]]:
    """(name in upper case, checked options with `format` filled in). Raises Refused after P0208."""
    table = SOURCES if is_source else SINKS
    name = connector.name.text.upper()
    rule = table.get(name)
    if rule is None:
        role = "source" if is_source else "sink"
        other = SINKS if is_source else SOURCES
        message = f"{name} is no {role}" if name in other else f"unknown connector {connector.name.text}"
        context.fail("P0208", message, connector.name.span, nearest(name, table))
    options: dict[str, str] = {}
    refused = False
    for option in connector.options:
        key, message, hint, span = option.key.key, "", None, option.key.span
        if key not in rule.options:
            message = f"{name} has no option {option.key.text}"
            hint = nearest(key, rule.options) or f"{name} () takes none"
        elif key in options:
            message = f"option {key} stands twice"
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
        raise Refused
    _fill_format(name, rule, options, connector, is_source, context)
    return name, tuple(options.items())


def _fill_format(
    name: str, rule: ConnectorRule, options: dict[str, str], connector: Connector, is_source: bool, context: Context
) -> None:
    """Say the format where the path does; refuse csv's options with other formats."""
    if "format" not in rule.options:
        return
    if "format" not in options:
        suffixes = PurePosixPath(options["path"]).suffixes
        found = [_SUFFIXES[s.lower()] for s in suffixes if s.lower() in _SUFFIXES]
        if not found and is_source:
            shown = "format 'csv', 'json', 'parquet' or 'arrow'"
            context.fail("P0208", f"{name} cannot tell the format from the path", connector.span, f"say {shown}")
        options["format"] = found[-1] if found else "csv"
        if not is_source and options["format"] == "arrow":
            context.fail("P0208", "results are written as csv, json or parquet", connector.span)
    foreign = [o for o in connector.options if o.key.key in rule.csv and options["format"] != "csv"]
    for option in foreign:
        message = f"option {option.key.key} is for csv, this is {options['format']}"
        context.attempt(lambda: context.fail("P0208", message, option.key.span))  # noqa: B023
    if foreign:
        raise Refused
