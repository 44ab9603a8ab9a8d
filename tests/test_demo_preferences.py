"""The demo of preferences shows what it says: under the burst large orders have all their alerts, at once, and what
waits comes afterwards; nothing is emitted that the plain query does not emit."""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture(scope="module")
def demo() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLES))
    try:
        yield importlib.import_module("preferences_demo")
    finally:
        sys.path.remove(str(EXAMPLES))


def test_alerts_of_large_orders_come_first(demo: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    calm = demo.run(20, 0.0)
    assert calm.done == calm.due > 0
    burst = demo.run(60, 0.0)
    assert burst.large_done == burst.large_due > 50
    assert burst.large_done < burst.done < 0.6 * burst.due
    shown = capsys.readouterr().out.splitlines()
    assert "calm" in shown[0] and "(100.0 %)" in shown[0]
    assert "burst" in shown[-2] and "delay of large  0.0 s" in shown[-2]
    assert "100.0 % of the work of its preference is done" in shown[1]
    assert "units waiting" in shown[-1] and re.search(r"delay of promising results 0(\.0\d+)? s", shown[-1])


def test_an_alert_is_one_of_the_plain_query_and_not_earlier(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, list[pa.Table]] = {"alerts": [], "every_alert": []}
    whole = demo.LiveEngine.round

    def kept(engine: object) -> dict[str, pa.Table]:
        found: dict[str, pa.Table] = whole(engine)
        for name, table in found.items():
            answers[name].append(table)
        return found

    monkeypatch.setattr(demo.LiveEngine, "round", kept)
    demo.run(40, 0.0)
    first, plain = ({}, {})
    for name, rows in (("alerts", first), ("every_alert", plain)):
        for row in pa.concat_tables(answers[name]).to_pylist():
            key = (row["number"], row["noticed"])
            assert key not in rows, "each pair comes once"
            rows[key] = row
    assert set(first) < set(plain)
    late = Counter(row["ts"] > plain[key]["ts"] for key, row in first.items())
    assert late[True] > 0 and late[False] > 0
    assert all(row["ts"] >= plain[key]["ts"] for key, row in first.items())
