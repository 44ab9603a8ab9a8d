"""EXPLAIN names the sources of which VALID(..) is the period of each row, since they have no list of columns."""

from __future__ import annotations

import json

import pytest

from penstock.session import Session

DECLARED = """
    CREATE STREAM m (at TIMESTAMP, k STRING) FROM MEMORY () TIMESTAMP BY at VALID FOR 5 SECONDS;
    CREATE VIEW lasting AS SELECT k, VALID(m) AS v FROM m [RANGE 1 MINUTE];"""


@pytest.mark.parametrize(
    "select, named",
    [
        ("SELECT k, VALID(m) FROM m [RANGE 1 MINUTE]", "m"),
        ("SELECT k FROM m [RANGE 1 MINUTE] WHERE LENGTH(VALID(m)) > 3", "m"),
        ("SELECT k, VALID(a) FROM m [VALID] AS a", "a"),
        (
            "SELECT a.k FROM m [RANGE 1 MINUTE] AS a, m (k) [RANGE 1 MINUTE] AS b,"
            " m [RANGE 1 MINUTE SLIDE 1 SECOND] AS c"
            " WHERE VALID(a) OVERLAPS VALID(b) AND VALID(c) OVERLAPS VALID(a)", "a, c",
        ),
        ("SELECT k FROM lasting", "m"),
        ("WITH x AS (SELECT k, VALID(m) AS v FROM m [RANGE 1 MINUTE]) SELECT k FROM x", "m"),
        ("SELECT k, VALID(s) FROM m (k) [RANGE 1 MINUTE] AS s", None),
        ("SELECT k, VALID(c) FROM m [PARTITION BY k SESSION 5 SECONDS] AS c", None),
        ("SELECT k FROM m [RANGE 1 MINUTE] -- VALID(m)", None),
    ],
)  # fmt: skip
def test_sources_that_are_not_coalesced_are_named_in_every_form(select: str, named: str | None) -> None:
    session = Session()
    session.execute(f"{DECLARED}\nCREATE QUERY q AS {select};")
    root = json.loads(session.explain("q", "json"))["logical"]["nodes"][0]
    assert root["parameters"].get("not coalesced") == named
    text = " ".join(session.explain("q").replace("\u00a0", " ").split())
    assert (f"not coalesced: {named}" in text) == (named is not None)
    assert ("not coalesced" in session.explain("q", "mermaid")) == (named is not None)
    shown = str(session.execute(f"EXPLAIN {select};").answers)
    assert ("not coalesced" in shown) == (named is not None)
