"""START of a query in a script reaches the work of a run."""

from __future__ import annotations

import pytest

from penstock.algebra.nodes.query import Start, StartMode
from penstock.errors import ScriptErrors
from penstock.session import Session

SCRIPT = """
CREATE STREAM S (a INT, ts BIGINT) FROM MEMORY () TIMESTAMP BY ts;
CREATE QUERY whole START BEGINNING AS SELECT a FROM S;
CREATE QUERY now START NOW AS SELECT a FROM S;
CREATE QUERY plain AS SELECT a FROM S;
"""


def test_a_query_that_starts_at_the_beginning() -> None:
    session = Session()
    session.execute(SCRIPT)
    work = session._work(tuple(session.catalog.queries.values()), False)
    assert work.all_starts == {"whole": Start(StartMode.BEGINNING)}


def test_a_query_that_is_dropped_and_declared_again_starts_as_the_new_one_says() -> None:
    session = Session()
    session.execute(SCRIPT + "DROP QUERY whole; CREATE QUERY whole AS SELECT a FROM S;")
    assert session._work(tuple(session.catalog.queries.values()), False).starts == {}


def test_a_script_that_is_run_cannot_begin_warm() -> None:
    session = Session()
    with pytest.raises(ScriptErrors) as raised:
        session.execute(SCRIPT + "CREATE QUERY warm START WARM AS SELECT a FROM S")
    assert raised.value.code == "P0702"
    assert not session.catalog.queries
