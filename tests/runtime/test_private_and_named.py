"""What a run writes is named by no text of the user's, lies nowhere but in its checkpoint, and is private there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from inline_run import InlineRun, cold, write_files

from penstock.connectors.deadletters import DeadLetters
from penstock.connectors.sinks.files import read_result

NAMES = ["a/b", "../../../x", "x" * 300, ".", "..", "Ünï ☃", "S", "s' s", "-", "nul.json", "a~1", "a@1"]


def script(tmp: Path, name: str) -> str:
    quoted = f"`{name}`"
    return f"""SET max_batch_bytes = 1; SET shards = 2;
    CREATE STREAM {quoted} (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp / "data"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND ON ERROR DEAD LETTER;
    CREATE STREAM other (ts BIGINT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
    INSERT INTO other VALUES (1, 1), (30, 2), (5, 3);
    CREATE RELATION `{name} static` (k INT, name BIGINT) FROM MEMORY ();
    INSERT INTO `{name} static` VALUES (0, 10), (1, 11), (2, 12);
    CREATE QUERY `{name} query` INTO FILES (path '{tmp / "out"}') AS
      SELECT ISTREAM(a.x, r.name) FROM {quoted} [NOW] AS a, `{name} static` AS r WHERE a.k = r.k;
    CREATE QUERY late INTO FILES (path '{tmp / "late"}') AS SELECT ISTREAM(k) FROM other [NOW];"""


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """A folder whose parent holds nothing else: the folders of earlier tests are not walked."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def loose(tmp_path: Path) -> Iterator[None]:
    """Whoever sets such a umask shares all that is not private on purpose."""
    before = os.umask(0)
    write_files(tmp_path / "data", range(3))
    cold()
    yield
    os.umask(before)


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_source_and_a_query(tmp_path: Path, name: str) -> None:
    checkpoint = tmp_path / "deep" / "down" / "here" / "checkpoint"
    before = {path for path in tmp_path.parent.rglob("*") if "data" not in path.parts}
    InlineRun(script(tmp_path, name), checkpoint).run(1)
    cold()
    run = InlineRun(script(tmp_path, name), checkpoint).run()
    assert run.ended
    assert len(read_result(str(tmp_path / "out"))) == 60
    assert len(read_result(str(tmp_path / "late"))) == 2
    letters = DeadLetters(run.folder.dead_letters)
    assert letters.sources() == ["other"] and len(list(letters.read("other"))) == 1
    written = {path for path in tmp_path.parent.rglob("*") if "data" not in path.parts} - before
    places = (checkpoint, tmp_path / "out", tmp_path / "late")
    assert [p for p in written if not any(p == q or q in p.parents or p in q.parents for q in places)] == []


def test_all_of_a_checkpoint_is_private_and_results_follow_the_umask(tmp_path: Path) -> None:
    run = InlineRun(script(tmp_path, "S"), tmp_path / "checkpoint").run()
    kinds = {path.relative_to(run.folder.root).parts[0] for path in run.folder.root.rglob("*")}
    assert kinds >= {"state", "seen", "splits", "spool", "tables", "rounds", "dead-letters", "results", "epochs"}
    modes = {(p.is_dir(), stat.S_IMODE(p.stat().st_mode)) for p in (tmp_path / "checkpoint").rglob("*")}
    assert modes == {(True, 0o700), (False, 0o600)}
    assert stat.S_IMODE((tmp_path / "checkpoint").stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "out").iterdir()} == {0o666}
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o777
