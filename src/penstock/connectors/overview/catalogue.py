"""The page docs/connectors.md, printed from the tables of options.

`python -m penstock.connectors.overview.catalogue > docs/connectors.md` renews it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from penstock.connectors.options import Applies, Option, OptionTable, formats_of
from penstock.connectors.sinks import SINKS, sink_options
from penstock.connectors.sources import source_names, source_options

_HEAD = """# Connectors and their options

Printed from the tables of options in `src/penstock/connectors` by
`python -m penstock.connectors.overview.catalogue`; a test keeps it current. What the connectors do is described in
[language/connectors.md](language/connectors.md).

Options stand in parentheses behind the connector, `FROM FILES (path 'flights/*.csv', header 'false')`; keys are
case-insensitive, values are texts. An option that a connector does not have, a value that it does not accept, and a
required option that is missing are refused with `P0208`. A *secret* is never printed or written to a checkpoint.
"""
_COLUMNS = "| option | values | default | meaning |\n|---|---|---|---|"


def connectors_page() -> str:
    """Return the whole page, Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    for name in dict.fromkeys((*source_names(), *SINKS)):
        yield f"## {name}\n"
        for role, table in (("source", source_options(name)), ("sink", sink_options(name))):
            if table is not None:
                yield from _table(f"As a {role}", table)


def _table(title: str, table: OptionTable) -> Iterator[str]:
    if not table.written:
        yield f"{title}: no options.\n"
        return
    yield f"{title}:\n\n{_COLUMNS}"
    yield from map(_row, table.written)
    if table.client:
        yield f"| `{table.client}*` | text | | setting of the client library, `_env` and `_file` behind it as above |"
    yield ""


def shown_default(option: Option[Any]) -> str:
    """Return the default of an option as the page shows it."""
    if option.default is None:
        return ""
    return f"`{option.default}`" if option.default else "empty"


def _row(option: Option[Any]) -> str:
    default = "required" if option.required else shown_default(option)
    notes = [f"for {formats_of(option)}"] if option.formats else []
    notes += [f"for {option.applies.value}"] if option.applies is not Applies.ALL else []
    notes += ["secret"] if option.secret else []
    text = option.help + (f" ({'; '.join(notes)})" if notes else "")
    cells = (f"`{option.name}`", option.type.name, default, text)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(connectors_page())
