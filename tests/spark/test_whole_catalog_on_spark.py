"""Whole catalogs one after the other with the engine on Spark: results go on over changed views and sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from control_on_spark_kit import opened, result, rows, until

from penstock.control.live.control import Control
from penstock.control.outcomes import CommandState

SCRIPT = """CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;
CREATE VIEW some AS SELECT v FROM S [NOW] WHERE v > 0;
CREATE QUERY q INTO FILES (path '{out}/q', format 'json') START NOW AS SELECT ISTREAM(v) FROM some;
CREATE QUERY other INTO FILES (path '{out}/other', format 'json') START NOW AS SELECT v FROM S;
"""


def applied(control: Control, script: str) -> list[str]:
    outcomes = control.apply(script)
    assert [one for one in outcomes if one.outcome is None or one.outcome.state is CommandState.FAILED] == []
    numbers = [one.outcome.number for one in outcomes if one.outcome is not None]

    def is_done() -> bool:
        waiting = (CommandState.PENDING, CommandState.HYDRATING)
        return not any(one.number in numbers and one.state in waiting for _, _, one in control.commands())

    until(is_done, control)
    assert [one.message for _, _, one in control.commands() if one.number in numbers and one.message] == []
    return [one.text for one in outcomes]


@pytest.mark.spark
def test_catalogs_one_after_the_other(spark: Any, tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"

    def values(name: str) -> set[int]:
        return {one[-1] for one in result(out / name)}

    script = SCRIPT.format(out=out)
    engine, control = opened(checkpoint, spark)
    assert len(applied(control, script)) == 4 and applied(control, script) == []
    control.insert("S", rows(1, 2, 3, 4))
    until(lambda: {1, 2, 3} <= values("q") and {1, 2, 3} <= values("other"), control, lambda: result(out / "q"))
    tracks = {one.name: one.query.answer.id for one in control.stored.values() if one.query is not None}

    changed = script.replace("v > 0", "v > 5")
    assert [one.split(" AS ")[0].split(" INTO")[0] for one in applied(control, changed)] == [
        "CREATE OR REPLACE VIEW some",
        "CREATE OR REPLACE QUERY `q`",
    ]
    control.insert("S", rows(5, 6, 7, 8))
    until(lambda: {7} <= values("q") and {6, 7} <= values("other"), control, lambda: result(out / "q"))
    assert not values("q") & {5}
    assert tracks["other"] == {one.name: one.query.answer.id for one in control.stored.values() if one.query}["other"]
    control.close()
    engine.close()

    engine, control = opened(checkpoint, spark)
    assert applied(control, changed) == [] and applied(control, control.catalog_text()) == []
    # What is another source begins with its own time, so its queries begin with new results.
    replaced = changed.replace("RETAIN 1000 SECONDS", "ORDER WITHIN 1 SECOND RETAIN 1000 SECONDS")
    shown = applied(control, replaced.replace("/q'", "/q2'").replace("/other'", "/other2'"))
    assert len(shown) == 4
    control.insert("S", rows(1, 7, 8, 20))
    until(lambda: {7, 8} <= values("q2"), control, lambda: result(out / "q2"))
    assert {1, 7, 8} <= values("other2")
    assert len(applied(control, "")) == 4 and control.stored == {}
    control.close()
    engine.close()
