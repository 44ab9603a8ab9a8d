"""Warnings of queries that answer far more rows than they read."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.language.scripts import bind_script

STREAM = "CREATE STREAM s (t TIMESTAMP, k INT, v INT) FROM MEMORY () TIMESTAMP BY t;"


@pytest.mark.parametrize(
    ("query", "warned"),
    [
        ("RSTREAM(SELECT COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND])", "1,000,000 rows"),
        ("RSTREAM(SELECT * FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND])", "3,600,000,000 rows"),
        ("RSTREAM(SELECT v FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND]) UNION ALL"
         " RSTREAM(SELECT k FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND])", "7,200,000,000 rows"),
        ("SELECT a.v, b.v AS w FROM s [RANGE 1 DAY] AS a, s [RANGE 1 DAY] AS b", "172,800 rows"),
        ("RSTREAM(SELECT * FROM s [RANGE 1 HOUR SLIDE 1 SECOND])", None),
        ("RSTREAM(SELECT COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 MINUTE])", None),
        ("RSTREAM(SELECT * FROM s [NOW])", None),
        ("SELECT k, COUNT(*) AS n FROM s GROUP BY k", None),
        ("SELECT * FROM s", None),
        ("SELECT a.v, b.v AS w FROM s [RANGE 1 MINUTE] AS a, s [RANGE 1 MINUTE] AS b WHERE a.k = b.k", None),
    ],
)  # fmt: skip
def test_answers_far_larger_than_the_input(query: str, warned: str | None) -> None:
    warnings = bind_script(f"{STREAM}CREATE QUERY q AS {query};").warnings
    found = [one.message for one in warnings if "rows of answers" in one.message]
    assert len(found) == (warned is not None)
    assert warned is None or found[0].startswith(f"about {warned} of answers for each row of input")


def test_what_the_statistics_say() -> None:
    query = "CREATE QUERY q AS SELECT a.v, b.v AS w FROM s [RANGE 1 MINUTE] AS a, s [RANGE 1 MINUTE] AS b;"
    assert not bind_script(STREAM + query).warnings
    (warning,) = bind_script("SET statistics = 's(rate 1000)';" + STREAM + query).warnings
    assert "120,000,000 rows a second where it reads 1,000 rows" in warning.message


def test_check_warns(tmp_path: Path) -> None:
    script = tmp_path / "fine.cql"
    query = "RSTREAM(SELECT COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND])"
    script.write_text(f"{STREAM}\nCREATE QUERY fine AS {query};\n")
    found = CliRunner().invoke(app, ["check", str(script)])
    assert found.exit_code == 0 and "fine.cql:2:14: warning: about 1,000,000 rows of answers" in found.output
