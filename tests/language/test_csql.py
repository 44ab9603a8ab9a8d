"""The four queries of `[csql 8]`, read as the paper prints them."""

from __future__ import annotations

import pytest

from penstock.language.scripts import Catalog, bind_query, bind_script, print_statement
from penstock.language.scripts.parse import parse_query
from penstock.language.text import SourceText

STREAMS = """
CREATE STREAM BodyCondition (Id INT, Species STRING, BTemp DOUBLE, BloodP DOUBLE, Timestamp TIMESTAMP)
  FROM MEMORY () TIMESTAMP BY Timestamp;
CREATE STREAM Pulse (Id INT, Timestamp TIMESTAMP) FROM MEMORY () TIMESTAMP BY Timestamp;
"""

QUERIES = {
    "1a": "SELECT * FROM BodyCondition AS B [Range 1 Minute, Frequency 100 Tuples] WHERE B.Species = 'horse'",
    "1b": "SELECT * [Frequency 100 Tuples] FROM BodyCondition AS B [Range 1 Minute] WHERE B.Species = 'horse'",
    "1c": "SELECT * [Frequency 100 Tuples Partitioned By B.Id ] FROM BodyCondition B [Range 1 Minute] "
    "WHERE B.Species = 'horse'",
    "2": "SELECT * [Frequency 1 Minute Partitioned By B.Id] "
    "FROM BodyCondition B [Frequency 100 Tuples Partitioned By B.Id]",
    "3": "SELECT P.Id, COUNT(*) [Frequency 10 Tuples Partitioned By P.Id] "
    "FROM Pulse P [Range 1 Minute, Frequency 1 Tuple] GROUP BY P.Id",
    "4": "SELECT PR.Id, AVG(PR.Rate)[Frequency 1 Minute Partitioned By PR.Id] "
    "FROM (SELECT P.Id, COUNT(*) [Frequency 10 Tuples Partitioned By P.Id] AS Rate "
    "FROM Pulse P [Range 1 Minute, Frequency 1 Tuple] GROUP BY P.Id ) "
    "AS PulseRate PR [Range 1 Hour, Frequency 1 Tuple] GROUP BY PR.Id",
}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return bind_script(STREAMS).catalog


@pytest.mark.parametrize("number", QUERIES)
def test_the_papers_own_spelling(number: str, catalog: Catalog) -> None:
    query = bind_query(QUERIES[number], catalog)
    assert query.root.is_stream
    printed = print_statement(parse_query(SourceText(QUERIES[number])))
    assert bind_query(printed, catalog).root == query.root


def test_names_of_the_answers(catalog: Catalog) -> None:
    assert bind_query(QUERIES["4"], catalog).output_names == ("ts", "Id", "avg(rate)")
