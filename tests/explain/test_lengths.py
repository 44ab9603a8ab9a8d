"""EXPLAIN shows lengths of time as they are written in CQL; those of integer timestamps in ticks."""

from __future__ import annotations

import json

import pytest

from penstock.session import Session

SCRIPT = """
CREATE STREAM S (a INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at;
CREATE STREAM N (a INT, at INT) FROM MEMORY () TIMESTAMP BY at;
CREATE QUERY q AS {query};
"""


@pytest.mark.parametrize(
    ("query", "label", "parameters"),
    [
        ("SELECT a FROM S [RANGE 1 MINUTE]", "TimeWindow", {"length": "1 MINUTE"}),
        (
            "SELECT a FROM S [RANGE 1 MINUTE SLIDE 10 SECONDS]",
            "TimeWindow",
            {"length": "1 MINUTE", "slide": "10 SECOND"},
        ),
        ("SELECT a FROM S [NOW]", "TimeWindow", {"length": "1 MICROSECOND"}),
        ("SELECT a FROM S [RANGE UNBOUNDED]", "TimeWindow", {"length": "unbounded"}),
        ("SELECT a FROM N [RANGE 1 MINUTE]", "TimeWindow", {"length": "60 ticks"}),
        (
            "SELECT a FROM S [PARTITION BY a ROWS 3 RANGE 36 HOURS]",
            "RowWindow",
            {"rows": "3", "length": "36 HOUR", "order": "arrival"},
        ),
        ("SELECT a FROM S [FREQUENCY 5 MINUTES]", "Frequency", {"every": "5 MINUTE"}),
        ("SELECT a FROM N [FREQUENCY 5 MINUTES]", "Frequency", {"every": "300 ticks"}),
        (
            "SELECT COUNT(*) FROM S [RANGE 7 TUPLES, FREQUENCY 1 HOUR], S [RANGE 1 DAY, FREQUENCY 3 TUPLES] b",
            "SequenceModel",
            {"evaluated": "1 HOUR, 3 tuples"},
        ),
    ],
)
def test_lengths_of_time(query: str, label: str, parameters: dict[str, str]) -> None:
    session = Session()
    session.execute(SCRIPT.format(query=query))
    nodes = json.loads(session.explain("q", "json"))["physical"]["nodes"]
    (node,) = (node for node in nodes if node["label"] == label)
    assert node["parameters"].items() >= parameters.items()
