"""A query made of a plan as data on Spark, over a stop and a start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from control_on_spark_kit import opened, result, rows, until

from penstock.control.entities.running_plan import running_plan_document
from penstock.language.commands import ExportCommand
from penstock.language.printer import string_text


@pytest.mark.spark
def test_a_query_made_of_an_exported_plan_answers_as_the_query(spark: Any, tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"

    def into(name: str) -> str:
        return f"INTO FILES (path '{out / name}', format 'json')"

    engine, control = opened(checkpoint, spark)
    control.submit(
        "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
        f"CREATE QUERY q {into('q')} AS SELECT ISTREAM(v % 2 AS odd, SUM(v) AS s) "
        "FROM S [RANGE 3 SECONDS] GROUP BY v % 2;"
    )
    (outcome,) = control.submit("EXPORT PLAN OF q;")
    assert isinstance(outcome.command, ExportCommand)
    plan = running_plan_document(control.view(), outcome.command.query, outcome.command.logical)
    assert '"physical": [{' in plan
    control.submit(f"CREATE QUERY p {into('p')} FROM PLAN {string_text(plan)};")
    control.insert("S", rows(1, 2, 3))
    until(lambda: len(result(out / "p")) >= 2 <= len(result(out / "q")), control)
    control.close()
    engine.close()

    engine, control = opened(checkpoint, spark)
    assert control.query("p")[1].status.value == "RUNNING"
    control.insert("S", rows(4, 5, 6))
    until(lambda: len(result(out / "p")) >= 5 <= len(result(out / "q")), control)
    assert sorted(result(out / "p")) == sorted(result(out / "q"))
    control.close()
    engine.close()
