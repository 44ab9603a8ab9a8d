"""The page docs/functions.md, printed from the tables of functions.

`python -m penstock.expressions.calls.catalogue > docs/functions.md` updates it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from penstock.expressions.aggregates import AGGREGATES
from penstock.expressions.aggregates.contract import DistinctRule
from penstock.expressions.library import NOTES, TOPICS

_HEAD = """# Functions

Written from the tables in `src/penstock/expressions` by `python -m penstock.expressions.calls.catalogue`; a test keeps
it current. Names are case-insensitive; brackets mark what may be left out. Meaning is Spark's with ANSI off: a value
without a result is NULL, and no row ever stops a query.
"""


def functions_page() -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    for topic, rows in TOPICS.items():
        yield f"## {topic}\n"
        if topic in NOTES:
            yield NOTES[topic]
        yield "| function | meaning |\n|---|---|"
        yield from (_row(row.operator or f"{row.name}({row.signature})", row.help, row.aliases) for row in rows)
        yield ""
    yield "## Aggregates\n"
    yield f"{_distinct()}\n"
    yield "| aggregate | meaning |\n|---|---|"
    yield from (_row(row.usage, row.help, row.aliases) for row in AGGREGATES)
    yield ""


def _distinct() -> str:
    """Return what DISTINCT and FILTER do."""
    named = {rule: ", ".join(f.name for f in AGGREGATES if f.distinct is rule) for rule in DistinctRule}
    return (
        "All take FILTER (WHERE condition) and DISTINCT, which counts every value, or combination of values, once."
        f" DISTINCT changes nothing in {named[DistinctRule.NO_EFFECT]}; {named[DistinctRule.REFUSED]} refuses it"
        " (`P0204`)."
    )


def _row(call: str, text: str, aliases: tuple[str, ...]) -> str:
    also = f" (also {', '.join(aliases)})" if aliases else ""
    cells = (f"`{call}`", text + also)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(functions_page())
