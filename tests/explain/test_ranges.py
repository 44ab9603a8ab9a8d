"""EXPLAIN says by which ranges a join is sorted, and how a band is cut."""

from __future__ import annotations

import json

from penstock.session import Session


def test_sorted_ranges_and_cells_are_told() -> None:
    session = Session()
    session.execute("""
        CREATE STREAM S (at TIMESTAMP, x INT) FROM MEMORY () TIMESTAMP BY at;
        CREATE STREAM T (at TIMESTAMP, y INT) FROM MEMORY () TIMESTAMP BY at;
        CREATE QUERY band AS SELECT x FROM S [NOW], T [NOW]
          WHERE S.at BETWEEN T.at - INTERVAL 5 SECONDS AND T.at + INTERVAL 1 MINUTE;
        CREATE QUERY less AS SELECT x FROM S [NOW], T [NOW] WHERE x + 1 < y;""")
    nodes = json.loads(session.explain("band", "json"))["physical"]["nodes"]
    (join,) = (n["parameters"] for n in nodes if n["label"] == "Join")
    assert join["state"] == "runs by (key, range)"
    assert join["sorted by"] == "[at, at] overlaps [at - 5000000, at + 60000000]"
    assert [n["parameters"]["width"] for n in nodes if n["label"] == "BandPartitioner"] == ["65000000"] * 2
    nodes = json.loads(session.explain("less", "json"))["physical"]["nodes"]
    (join,) = (n["parameters"] for n in nodes if n["label"] == "Join")
    assert join["sorted by"] == "[x + 1, ...] overlaps [..., y]"
