"""A run over periods that dies anywhere answers, and counts what it leaves out, as one that lives."""

from __future__ import annotations

from pathlib import Path

import pytest
from inline_run import CRASHES, lived, write_files

from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.output.totals import TotalsMark

_QUERIES = {
    "coalesced": "SELECT k, VALID(s) FROM S (k) VALID FOR (x % 4) SECONDS [RANGE 9 SECONDS] AS s",
    "told": "SELECT k, VALID(s) FROM S (k) VALID FOR 2 SECONDS AS s WHERE CLOSED(VALID(s))",
    "granules": "SELECT k, VALID(s) FROM S (k) [RANGE 12 SECONDS SLIDE 3 SECONDS] AS s",
    "sessions": "SELECT k, x, VALID(s) FROM S [PARTITION BY k SESSION (x % 5) SECONDS AT MOST 20 SECONDS] AS s",
    "sums": "SELECT k, VALID(s), COUNT(*) AS n, SUM(x) AS t FROM S [PARTITION BY k SESSION 2 SECONDS] AS s"
    " GROUP BY k, VALID(s)",
    "states": "SELECT k, x, VALID(s) FROM S VALID UNTIL NEXT BY k AT MOST 7 SECONDS [RANGE 9 SECONDS] AS s",
    "facts": "SELECT k, SUM(LENGTH(VALID(s))) AS held FROM S VALID UNTIL NEXT BY k AS s WHERE CLOSED(VALID(s))"
    " GROUP BY k",
    "lasting": "SELECT k, BEGIN(VALID(s)) AS since FROM S VALID UNTIL NEXT BY k AS s WHERE LENGTH(VALID(s)) >= 2",
    "silent": "SELECT k, VALID(s) FROM GAPS OF S (k) VALID FOR 1 SECOND AT LEAST 2 SECONDS AS s",
    "now": "SELECT DISTINCT k FROM S VALID FOR (x % 6) SECONDS [VALID] AS s",
    "kept": "SELECT k, VALID(s) FROM S (k) VALID UNTIL NEXT BY k [RANGE 60 SECONDS] AS s",
}  # fmt: skip


def script(folder: Path) -> str:
    queries = "\n".join(
        f"CREATE QUERY {name} INTO FILES (path '{folder}/{name}', format 'csv') AS {query};"
        for name, query in _QUERIES.items()
    )
    return f"""CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{folder.parent}/data', format 'parquet')
        TIMESTAMP BY ts UNIT SECOND;
    SET max_batch_rows = 20;
    {queries}"""


def live(folder: Path, crash: str | None) -> dict[str, list[str]]:
    """Run over all input, with a death in every second round; return what was emitted, and what was left out of rows at
    the ingest."""
    folder.mkdir(parents=True)
    answers = lived(script(folder), folder, _QUERIES, crash)
    totals = TotalsMark.read(Folder(folder / "checkpoint" / "penstock"))
    assert totals is not None
    return {**answers, "left out": [f"{name} {counts}" for name, counts in sorted(totals.at_ingest.items())]}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("calm")
    write_files(folder / "data", range(5))
    return live(folder / "living", None)


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", [*CRASHES, "marked"])
def test_a_run_that_dies_answers_what_one_that_lives_answers(
    crash: str, tmp_path: Path, expected: dict[str, list[str]]
) -> None:
    assert all(expected.values()), {name for name, rows in expected.items() if not rows}
    none = {"without period": 0, "ended on arrival": 0}
    assert expected["left out"] == [f"now {none | {'without period': 18}}", f"sums {none}"]
    write_files(tmp_path / "data", range(5))
    assert live(tmp_path / "dying", crash) == expected
