"""Wrong statements and what a user reads, as text: `statement`, then the message as it is shown.

Fixtures lie in `errors.txt`; in `many_errors.txt` those with several mistakes, each told once and none of which makes
others; in `newcomers.txt` scripts of people who know Flink SQL or Spark SQL; in `newcomers_to_periods.txt` what users
of SQL:2011, TSQL2, Flink, Spark, ksqlDB, RisingWave and Esper write about periods and sessions. Cases are divided by
lines of `====`, the statement above `----`, the message below.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from plans import errors_of

from penstock.errors import CODES, ScriptErrors
from penstock.language.scripts import Catalog, bind_query, bind_script

FIXTURES = Path(__file__).parent / "errors.txt"
NEWCOMERS = Path(__file__).parent / "newcomers.txt"
MANY = Path(__file__).parent / "many_errors.txt"
PERIODS = Path(__file__).parent / "newcomers_to_periods.txt"
#: The declarations before each text there.
OF_PERIODS = """
CREATE STREAM clicks (at TIMESTAMP, usr STRING, amount INT, b0 TIMESTAMP, e0 TIMESTAMP) FROM MEMORY () TIMESTAMP BY at;
CREATE RELATION emp (name STRING, dept STRING, vf DATE, vt DATE, PERIOD FOR VALID (vf, vt)) FROM MEMORY ();
""".strip()


def _cases(fixtures: Path = FIXTURES) -> list[tuple[str, str]]:
    cases = []
    for case in fixtures.read_text().split("====\n"):
        statement, _, message = case.partition("----\n")
        cases.append((statement.strip("\n"), message.strip("\n")))
    return cases


@pytest.mark.parametrize(("statement", "message"), _cases(), ids=lambda v: v.splitlines()[0][:60] if v else "")
def test_message(statement: str, message: str, catalog: Catalog) -> None:
    shown = "\n".join(error.render() for error in errors_of(statement, catalog))
    assert shown == message


@pytest.mark.parametrize(("statement", "message"), _cases(MANY), ids=lambda v: v.splitlines()[0][:60] if v else "")
def test_every_mistake_is_told(statement: str, message: str, catalog: Catalog) -> None:
    errors = errors_of(statement, catalog)
    assert "\n".join(error.render() for error in errors) == message
    assert len(errors) > 1
    assert all(error.position is not None for error in errors)


@pytest.mark.parametrize(("script", "message"), _cases(NEWCOMERS), ids=lambda v: v.splitlines()[0][:60] if v else "")
def test_what_newcomers_write(script: str, message: str) -> None:
    assert "\n".join(error.render() for error in errors_of(script)) == message


@pytest.mark.parametrize(("text", "message"), _cases(PERIODS), ids=lambda v: v.splitlines()[0][:60] if v else "")
def test_what_users_of_other_systems_write_about_periods(text: str, message: str) -> None:
    errors = errors_of(f"{OF_PERIODS}\n{text}")
    assert "\n".join(error.render() for error in errors) == message
    assert any(error.hint for error in errors)
    assert all(error.position is not None and error.position.line == 3 for error in errors)


#: Codes of the language layer; the others belong to sources, sinks and runs.
OURS = [code for code in CODES if code[:3] in ("P01", "P02", "P03", "P09")]


@pytest.mark.parametrize("code", OURS)
def test_every_code_has_a_case(code: str) -> None:
    assert f"error {code}:" in FIXTURES.read_text()


def test_all_errors_of_a_script_come_at_once(catalog: Catalog) -> None:
    script = """
        CREATE STREAM bad (a INTT, ts TIMESTAMP) FROM MEMORY () TIMESTAMP BY ts;
        CREATE QUERY one AS SELECT a FROM bad;
        CREATE QUERY two AS SELECT aa, bb FROM s WHERE cc = 1;
        CREATE QUERY three AS SELECT FROM s;
        CREATE VIEW four AS SELECT a FROM s [RANGE 1 MICROSECOND SLIDE];
        SELECT * FROM four;
        SELECT SUM(a) OVER (ORDER BY a) FROM s, missing;
    """
    assert [(e.code, e.position.line) for e in errors_of(script, catalog) if e.position] == [
        ("P0207", 2),
        ("P0202", 4),
        ("P0202", 4),
        ("P0202", 4),
        ("P0101", 5),
        ("P0102", 6),
        ("P0901", 8),
        ("P0201", 8),
    ]


def test_nothing_is_declared_by_a_script_with_an_error(catalog: Catalog) -> None:
    with pytest.raises(ScriptErrors):
        bind_script("CREATE VIEW fine AS SELECT a FROM s; SELECT nope FROM s", catalog)
    assert "fine" not in catalog


def test_a_query_text_is_one_query(catalog: Catalog) -> None:
    for text in ("SHOW STREAMS", "SELECT a FROM s; SELECT a FROM s", "", "-- nothing"):
        with pytest.raises(ScriptErrors) as caught:
            bind_query(text, catalog)
        assert caught.value.code == "P0101"


def test_queries_without_a_name_after_one_that_cannot_be_bound(catalog: Catalog) -> None:
    with pytest.raises(ScriptErrors) as raised:
        bind_script("SELECT nope FROM s; SELECT a FROM s; SELECT nor FROM s", catalog, one_time=False)
    assert [error.message for error in raised.value.errors] == ["unknown column nope", "unknown column nor"]
    assert not catalog.queries
