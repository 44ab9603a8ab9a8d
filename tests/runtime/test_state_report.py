"""`penstock state`: what a checkpoint holds, told without touching it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from inline_run import InlineRun, write_files
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.physical.operators import OPERATORS
from penstock.physical.synopses import SYNOPSES, synopsis_class
from penstock.physical.synopses.contract import Synopsis
from penstock.runtime.spark.checkpoint.state_report import report


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    write_files(tmp_path / "data", range(6))
    script = f"""SET max_batch_bytes = 1; SET shards = 2;
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp_path / "data"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND;
    CREATE QUERY pairs INTO FILES (path '{tmp_path / "pairs"}') AS
      SELECT ISTREAM(a.x) FROM S [RANGE 30 SECONDS] AS a, S [RANGE 10 SECONDS] AS b WHERE a.k = b.k;
    CREATE QUERY sums INTO FILES (path '{tmp_path / "sums"}') AS
      SELECT k, SUM(x) AS s FROM S [RANGE 30 SECONDS] GROUP BY k;"""
    InlineRun(script, tmp_path / "checkpoint").run(5)
    return tmp_path / "checkpoint"


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.rglob("*")}


def test_rows_bytes_and_age_of_every_operator(checkpoint: Path) -> None:
    before = listing(checkpoint)
    found = report(checkpoint)
    assert listing(checkpoint) == before
    assert (found.batch, found.epoch, found.shards) == (4, 0, 2)
    states = {(one.operator, one.state): one for one in found.queries["pairs"]}
    left = next(one for (operator, _), one in states.items() if operator == "Join" and one.total.rows)
    # Time stands at 98: the largest timestamp seen is 99, and its equals may still come.
    for one in found.queries["pairs"]:
        if one.operator == "Join" and one.total.rows:
            assert one.total.kind == "ts" and one.total.newest is not None and one.total.newest <= 99
    assert left.total.rows == sum(held.rows for held in left.shards.values())
    groups = next(one.total for one in found.queries["sums"] if one.operator == "Aggregate" and one.total.rows == 3)
    assert groups.bytes > 0 and groups.chunks > 0 and groups.oldest is None
    ends = next(one.total for one in found.queries["sums"] if one.total.kind == "due" and one.total.rows > 3)
    assert ends.oldest is not None and ends.newest is not None and 98 < ends.oldest <= ends.newest <= 99 + 30


def test_the_command_tells_it_as_text_and_as_data(checkpoint: Path) -> None:
    text = CliRunner().invoke(app, ["state", str(checkpoint), "--shards"])
    assert text.exit_code == 0
    assert "batch 4 delivered, 2 shards" in text.stdout
    assert "query sums: " in text.stdout and "  shard 1" in text.stdout and "oldest" in text.stdout
    given = json.loads(CliRunner().invoke(app, ["state", str(checkpoint), "--format", "json"]).stdout)
    found = report(checkpoint)
    assert given["queries"]["sums"]["rows"] == found.total("sums").rows
    for operator in given["queries"]["pairs"]["operators"]:
        assert operator.keys() >= {"operator", "rows", "bytes", "chunks", "oldest", "newest"}
        assert "shards" not in operator


def test_a_folder_that_is_no_checkpoint(tmp_path: Path, checkpoint: Path) -> None:
    for folder, told in ((tmp_path / "nowhere", "does not exist"), (tmp_path / "data", "holds no checkpoint")):
        found = CliRunner().invoke(app, ["state", str(folder)])
        assert found.exit_code == 2 and "P0608" in found.stderr and told in found.stderr
    (path,) = (checkpoint / "penstock" / "epochs").iterdir()
    path.write_text(path.read_text().replace("SUM(x)", "MAX(x)"))
    found = CliRunner().invoke(app, ["state", str(checkpoint)])
    assert found.exit_code == 2 and "P0605" in found.stderr and "damaged" in found.stderr


def subclasses(base: type) -> list[type]:
    """All classes below `base`."""
    return [found for kind in base.__subclasses__() for found in (kind, *subclasses(kind))]


def test_every_synopsis_has_its_place_in_the_report() -> None:
    assert OPERATORS
    kinds = [kind for kind in subclasses(Synopsis) if kind.__module__.startswith("penstock")]
    # Bases are no synopses; `SortedRuns` and `KeyedTable` are both.
    both = {"SortedRuns", "KeyedTable"}
    names = {kind.__name__ for kind in kinds if not kind.__subclasses__() or kind.__name__ in both}
    assert names == set(SYNOPSES)
    assert all(synopsis_class(name) in subclasses(Synopsis) for name in SYNOPSES)
    assert synopsis_class("SynopsisOfAnotherVersion") is None
