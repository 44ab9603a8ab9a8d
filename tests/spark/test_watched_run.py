"""A run that a notebook shows while it goes on."""

from __future__ import annotations

from typing import Any

import pytest

import penstock


@pytest.mark.spark
def test_a_run_is_shown_until_it_ends(spark: Any) -> None:
    session = penstock.Session(spark)
    session.execute("""
      CREATE STREAM S (ts INT, room STRING, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
      INSERT INTO S VALUES (1, 'hall', 5), (2, 'attic', 7), (20, 'hall', 6);
      CREATE QUERY most INTO MEMORY () AS SELECT room, MAX(v) AS v FROM S [RANGE 10 SECONDS] GROUP BY room;
    """)
    views: list[Any] = []

    class Output:
        def update(self, view: object) -> None:
            views.append(view)

    def display(view: object) -> Output:
        views.append(view)
        return Output()

    with session.start() as run:
        run.watch("most", every=0.1, display=display)
    assert [row[1:] for row in views[-1].rows.shown] == [("hall", 6)] and views[-1].state.endswith("it has ended")
    assert views[-1].rows.count == run["most"].to_arrow().num_rows
