"""Queries whose place another one takes with rows that are still to come (ALTER QUERY .. AS .. [ROWS n] .. START WARM
WAIT), without Spark: the former one answers until they have come, and what is said of each command meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from control_kit import CommandFailed, Server, server
from mortal_storage import MortalStorage
from test_replacements import FORGOTTEN, SUM, change, edit, feed, settle, shown, text

from penstock.control.registry import restored
from penstock.control.repair import pause_queries
from penstock.control.stored_catalog import StoredCatalog
from penstock.control.transactions import listing
from penstock.errors import PenstockError
from penstock.server.statements.listed_views import plan_change_text, shown_queries

LAST = "SELECT SUM(v) AS s FROM S [ROWS 4]"
CHANGE = f"ALTER QUERY q AS {LAST} START WARM WAIT"
#: The sum of the last rows at an instant, where each instant had one row with its number.
FOUR = {ts: 4 * ts - 6 for ts in range(4, 60)}
TWO = {ts: 2 * ts - 1 for ts in range(2, 60)} | {1: 1}


def waiting(one: Server, start: str = "") -> None:
    """Have a query of two seconds, of which one of the last four rows is to take the place, of which none is kept."""
    one.done(FORGOTTEN + f"CREATE QUERY q {start} AS {SUM}")
    feed(one, range(1, 11))
    one.done(CHANGE)
    settle(one)


def texts(one: Server) -> list[str]:
    return [each for transaction, _, _ in one.control.commands() for each in transaction.texts]


def retained(one: Server, name: str = "S") -> int | None:
    """Return for how long the engine keeps a stream."""
    return one.engine._live._histories[name].retain


def test_the_former_query_answers_until_the_rows_have_come(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        waiting(one)
        assert (text(one), edit(one).other.text, edit(one).awaits) == (SUM, LAST, True)
        # The row of 10 may be followed by others of its instant, and is one of those to come.
        assert change(one) == "another query takes over from q with 4 more rows of S"
        assert one.status("q") == "RUNNING"
        assert set(one.engine.version().heartbeats) == {one.control.query("q")[1].place}, "it is computed already"
        feed(one, (11, 12))
        assert change(one) == "another query takes over from q with 2 more rows of S"
        (listed,) = one.control.queries()
        said = plan_change_text(listed)
        assert "takes over, with 2 more rows of S" in said and LAST in said
        assert "-- another query takes over from q with 2 more" in shown_queries(
            [listed], one.control.version(), {}, {}
        )
        feed(one, range(13, 31))
        assert (text(one), edit(one), change(one)) == (LAST, None, None)
        assert shown(one) == {ts: (TWO if ts < 14 else FOUR)[ts] for ts in range(1, 30)}
        assert retained(one) == 0, "the stream still keeps all that comes"
        found = [each for each in texts(one) if each.startswith("QUERY q: ")]
        assert found == [
            "QUERY q: ITS ROWS HAVE COME",
            "QUERY q: TAKES OVER",
            "QUERY q: FORMER QUERY ENDS",
        ] or found == [
            "QUERY q: ITS ROWS HAVE COME",
            "QUERY q: ITS STREAMS KEEP NO MORE THAN THEIR RETAIN",
            "QUERY q: TAKES OVER",
            "QUERY q: FORMER QUERY ENDS",
        ], found
