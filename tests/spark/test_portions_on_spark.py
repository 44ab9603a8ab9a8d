"""A server on Spark with queries whose answers are far larger than their input: others are answered, commands are
carried out between portions, a DROP takes effect, and what cannot be divided fails alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from control_on_spark_kit import opened, result, until

FINE = {
    "counted": "RSTREAM(SELECT COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND])",
    "rows": "RSTREAM(SELECT * FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND])",
    "grouped": "RSTREAM(SELECT v, SUM(v) AS n FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND] GROUP BY v)",
    "listed": "RSTREAM(SELECT ARRAY_AGG(v) AS n FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND])",
    "united": "RSTREAM(SELECT v FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND])"
    " UNION ALL RSTREAM(SELECT -v AS v FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND])",
}
PAIRS = "SELECT a.v, b.v AS w FROM s [RANGE 1 DAY] AS a, s [RANGE 1 DAY] AS b"


@pytest.mark.spark
def test_bad_queries_beside_good_ones(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    engine, control = opened(tmp_path / "checkpoint", spark)
    control.submit("ALTER SYSTEM SET max_batch_answers = '1 MB';")

    def write(name: str, query: str, options: str = "") -> None:
        control.submit(f"CREATE QUERY {name} INTO FILES (path '{out / name}', format 'json') {options}AS {query};")

    def status(name: str) -> str:
        return control.query(name)[1].status.value

    def heartbeat(name: str) -> int:
        return control.version().heartbeats.get(control.query(name)[1].place, -1)

    control.submit("CREATE STREAM s (t TIMESTAMP, v INT) FROM HTTP () TIMESTAMP BY t;")
    write("good", "SELECT v FROM s WHERE v > 0")
    for name, query in FINE.items():
        write(name, query)
    write("pairs", PAIRS, "WITH (result_limit '100 kB') ")
    many = ", ".join(f"('2024-01-01 00:00:00', {k})" for k in range(1, 101))
    control.submit(f"INSERT INTO s VALUES {many}, ('2024-01-01 02:00:00', 0), ('2024-01-01 02:00:01', 0);")
    until(lambda: len(result(out / "good")) >= 100, control, lambda: result(out / "good"))
    until(lambda: status("pairs") == "FAILED", control)
    assert control.query("pairs")[1].code == "P0634" and not result(out / "pairs")
    for name in FINE:
        until(lambda name=name: len(result(out / name)) > 0, control, lambda name=name: name)
    # All go on, and none is near its end.
    before = {name: heartbeat(name) for name in FINE}
    for name in FINE:
        until(lambda name=name: heartbeat(name) > before[name], control, lambda name=name: (name, before))
        assert heartbeat(name) < heartbeat("good")
    control.submit("INSERT INTO s VALUES ('2024-01-01 02:00:02', 7), ('2024-01-01 02:00:03', 0);")
    until(lambda: len(result(out / "good")) >= 101, control)
    control.submit("DROP QUERY counted; DROP QUERY rows;")
    dropped = len(result(out / "counted"))
    before = {"grouped": heartbeat("grouped")}
    until(lambda: heartbeat("grouped") > before["grouped"], control)
    assert len(result(out / "counted")) == dropped
    control.close()
    engine.close()

    # Another process goes on where this one stopped: every instant once, in order.
    engine, control = opened(tmp_path / "checkpoint", spark)
    control.submit("ALTER SYSTEM SET max_batch_answers = '1 MB';")
    before = {"grouped": heartbeat("grouped"), "united": heartbeat("united")}
    for name in before:
        until(lambda name=name: heartbeat(name) > before[name], control, lambda name=name: (name, before))
    control.submit("DROP QUERY grouped; DROP QUERY united; DROP QUERY listed;")
    control.submit("INSERT INTO s VALUES ('2024-01-01 02:00:04', 8), ('2024-01-01 02:00:05', 0);")
    until(lambda: len(result(out / "good")) >= 102, control)
    control.close()
    engine.close()
    for name, per_instant in (("grouped", 100), ("united", 200), ("rows", 100)):
        found = result(out / name)
        times = [row[0] for row in found]
        assert times == sorted(times) and len(times) == len(set(times)) * per_instant, name
