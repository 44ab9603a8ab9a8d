"""The name of a control relation, `penstock.name`, which one-time SELECTs read."""

from __future__ import annotations

from penstock.algebra import Source
from penstock.errors import nearest
from penstock.language.binder.context import Context, QueryNames
from penstock.language.catalog import ControlTable
from penstock.language.queries import CONTROL_SCHEMA, Name


def bind_control_name(name: Name, context: Context) -> Source:
    """Return what the name of a control relation stands for in FROM. Fails with P0201 and P0751."""
    table = control_table(name, context)
    if context.query_names is not QueryNames.ANSWER and not table.source.is_stream:
        streams = [key for key, other in context.catalog.control.items() if other.source.is_stream]
        hint = "SELECT reads it once"
        if streams:
            hint += f"; continuous queries read the stream {', '.join(sorted(streams))}"
        message = f"{table.source.name} is a control relation, which no continuous query reads: its rows are no"
        context.fail("P0751", f"{message} function of the input", name.span, hint)
    return table.source


def control_table(name: Name, context: Context) -> ControlTable:
    """Return the control relation with a name. Fails with P0201 for an unknown one, P0751 without a server."""
    control = context.catalog.control
    if not control:
        hint = "penstock serve has them"
        context.fail("P0751", f"{name.whole}: only a server has control relations", name.span, hint)
    table = control.get(name.key)
    if table is None or not name.matches(table.source.name):
        known = [one.source.name.removeprefix(f"{CONTROL_SCHEMA}.") for one in control.values()]
        declared = context.catalog.kind(name.key)
        own = f"what is declared has no schema: SELECT * FROM {name.text}" if declared else None
        hint = own or nearest(name.text, known) or f"SELECT DISTINCT object FROM {CONTROL_SCHEMA}.columns lists them"
        context.fail("P0201", f"unknown control relation {name.whole}", name.span, hint)
    return table
