"""Check connectors of a script against their tables of options (P0208)."""

from __future__ import annotations

from pathlib import PurePosixPath

from penstock.connectors.options import Applies, OptionTable, formats_of, refusal
from penstock.connectors.sinks import SINKS, sink_options
from penstock.connectors.sources import implied_format, source_names, source_options
from penstock.errors import nearest
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.clauses import Connector
from penstock.redaction import is_secret

_SEPARATED = "did you mean delimiter?"
_UTF_8 = "texts are read as UTF-8: iconv -f LATIN1 -t UTF-8 converts a file"
_DATES = "a DATE is written as 2024-03-01; one in another form is declared STRING, and read by TO_DATE(c, pattern)"
_LINES = "an array is read as its elements, another object is a line: jq -c . file.json > lines.json"
_OFFSETS = "a checkpoint has the offsets of a run: there is no group of consumers"
#: Options of pandas, Spark and Flink, and an option without which a connector does not mean them -> what to write.
_OF_OTHERS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("sep", "separator", "field_delimiter", "csv.field-delimiter"), ("delimiter", _SEPARATED)),
    **dict.fromkeys(("encoding", "charset"), ("delimiter", _UTF_8)),
    "timestampformat": ("timestamp_format", "did you mean timestamp_format?"),
    **dict.fromkeys(("date_format", "dateformat"), ("header", _DATES)),
    **dict.fromkeys(("escapechar", "escape_char"), ("escape", "did you mean escape?")),
    **dict.fromkeys(("multiline", "multi_line"), ("header", _LINES)),
    **dict.fromkeys(("group_id", "group.id", "properties.group.id"), ("starting", _OFFSETS)),
}


def _of_others(key: str, table: OptionTable) -> str | None:
    """Return the hint for an option of another system that a connector has in other words, or does not need."""
    beside, hint = _OF_OTHERS.get(key, ("", None))
    return hint if beside in table.names else None


def bind_connector(connector: Connector, is_source: bool, context: Context) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return (name in upper case, checked options with `format` filled in). Raises BindingFailed after P0208."""
    name = connector.name.text.upper()
    table = source_options(name) if is_source else sink_options(name)
    if table is None:
        sources, sinks = source_names(), tuple(SINKS)
        role, others = ("source", sinks) if is_source else ("sink", sources)
        message = f"{name} cannot be a {role}" if name in others else f"unknown connector {connector.name.text}"
        context.fail("P0208", message, connector.name.span, nearest(name, sources if is_source else sinks))
    options: dict[str, str] = {}
    refused = False
    for written in connector.options:
        key, message, hint, span = written.key.key, "", None, written.key.span
        option, client = table.get(key), table.is_client_setting(key)
        if option is None and not client:
            message = f"{name} has no option {written.key.text}"
            hint = _of_others(key, table) or nearest(key, table.names) or f"{name} () has no options"
        elif key in options:
            message = f"option {key} occurs twice"
        elif client and is_secret(key):
            message, hint = (
                f"option {key} is a secret, which must not be stored in a run's files",
                f"{key}_env 'NAME' or {key}_file 'path'",
            )
        elif option is None:
            options[key] = written.value
        else:
            try:
                options[key] = option.type.normal(written.value)
            except ValueError as error:
                message, span = refusal(option, written.value, error), written.value_span
        if message:
            refused = True
            context.attempt(lambda: context.fail("P0208", message, span, hint))  # noqa: B023
    missing = [option.name for option in table if option.required and option.name not in options and not refused]
    if missing:
        context.fail("P0208", f"{name} needs the option {missing[0]}", connector.span, f"{missing[0]} '...'")
    if refused:
        raise BindingFailed
    _fill_format(name, table, options, connector, context)
    return name, tuple(options.items())


def _fill_format(
    name: str, table: OptionTable, options: dict[str, str], connector: Connector, context: Context
) -> None:
    """Add the format if the path implies it; reject options of other formats."""
    format_option = table.get("format")
    if format_option is None or table.get("path") is None:
        return
    *words, last = format_option.type.words
    if "format" not in options:
        formats = [*filter(None, map(implied_format, PurePosixPath(options["path"]).suffixes))]
        if not formats and format_option.default is None:
            shown = f"format {', '.join(repr(word) for word in words)} or '{last}'"
            context.fail("P0208", f"{name} cannot derive the format from the path", connector.span, f"say {shown}")
        options["format"] = formats[-1] if formats else format_option.default or ""
        if options["format"] not in format_option.type.words:
            context.fail("P0208", f"results are written as {', '.join(words)} or {last}", connector.span)
    refused = False
    for written in connector.options:
        option = table.get(written.key.key)
        if option is not None and option.formats and options["format"] not in option.formats:
            refused = True
            message = f"option {option.name} is for {formats_of(option)}, this is {options['format']}"
            context.attempt(lambda: context.fail("P0208", message, written.key.span))  # noqa: B023
    if refused:
        raise BindingFailed


def options_fit(connector: Connector, is_timed: bool, context: Context) -> None:
    """Fail with P0208 for an option that does not apply to a source with, or without, a timestamp."""
    table = source_options(connector.name.text.upper()) or OptionTable()
    wrong = Applies.STATIC if is_timed else Applies.TIMED
    for written in connector.options:
        option = table.get(written.key.key)
        if option is not None and option.applies is wrong:
            message = f"option {written.key.text} is for {wrong.value}"
            context.attempt(lambda: context.fail("P0208", message, written.key.span))  # noqa: B023
