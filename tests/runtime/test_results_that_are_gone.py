"""A run goes on only where its results still stand, and only in a folder that is a checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from inline_run import InlineRun, cold, write_files

from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.output.result_parts import ResultParts
from penstock.session import Session


def script(tmp: Path, out: str = "out", *more: str) -> str:
    queries = {"sums": "SELECT k, SUM(x) AS s FROM S [RANGE 45 SECONDS] GROUP BY k"}
    queries |= {name: f"SELECT ISTREAM(k, x, {i} AS i) FROM S [NOW] WHERE x > 3" for i, name in enumerate(more)}
    text = f"""SET max_batch_bytes = 1; SET shards = 2;
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp / "data"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND;"""
    return text + "".join(
        f"CREATE QUERY {name} INTO FILES (path '{tmp / out / name}') AS {query};" for name, query in queries.items()
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_files(tmp_path / "data", range(5))
    cold()
    return tmp_path


def refused(tmp: Path, text: str | None = None) -> str:
    cold()
    with pytest.raises(PenstockError) as told:
        InlineRun(text or script(tmp), tmp / "checkpoint")
    assert told.value.code == "P0503" and "--accept-missing-results" in (told.value.hint or "")
    return told.value.message


def lose_all(folder: Path) -> None:
    shutil.rmtree(folder)


def lose_one(folder: Path) -> None:
    (folder / "part-00000001.csv").unlink()


def lose_marker(folder: Path) -> None:
    (folder / "_penstock.json").unlink()


@pytest.mark.parametrize(
    ("lose", "named"),
    [
        (lose_all, "_penstock.json, part-00000000.csv, part-00000001.csv, part-00000002.csv"),
        (lose_one, "1 is gone: part-00000001.csv"),
        (lose_marker, "1 is gone: _penstock.json"),
    ],
)
def test_a_result_that_is_gone_is_missed(data: Path, lose: Callable[[Path], None], named: str) -> None:
    InlineRun(script(data), data / "checkpoint").run(3)
    kept = data / "kept"
    shutil.copytree(data / "out", kept)
    lose(data / "out" / "sums")
    before = sorted(path.name for path in data.glob("out/*/*"))
    message = refused(data)
    assert named in message and "of the 3 parts" in message and str(data / "out" / "sums") in message
    assert sorted(path.name for path in data.glob("out/*/*")) == before
    # Put back, the run goes on.
    shutil.copytree(kept, data / "out", dirs_exist_ok=True)
    assert InlineRun(script(data), data / "checkpoint").run().ended


@pytest.mark.parametrize("lose", [lose_all, lose_one, lose_marker])
def test_what_is_gone_on_purpose_is_accepted_once(data: Path, lose: Callable[[Path], None]) -> None:
    InlineRun(script(data, "calm"), data / "calm-checkpoint").run()
    cold()
    InlineRun(script(data), data / "checkpoint").run(3)
    lose(data / "out" / "sums")
    left = {path.name for path in data.glob("out/sums/part-*")}
    cold()
    InlineRun(script(data), data / "checkpoint", accept_missing=True).run(1)
    cold()
    # What was accepted is not missed again; what is lost later is.
    assert InlineRun(script(data), data / "checkpoint").run().ended
    calm = {path.name: path.read_bytes() for path in data.glob("calm/sums/part-*")}
    found = {path.name: path.read_bytes() for path in data.glob("out/sums/part-*")}
    assert found == {name: data for name, data in calm.items() if name in found}
    assert found.keys() == left | {name for name in calm if name > "part-00000002.csv"}
    assert read_result(str(data / "out" / "sums")).num_rows
    (data / "out" / "sums" / "part-00000004.csv").unlink()
    assert "1 is gone: part-00000004.csv" in refused(data)


def test_a_query_that_begins_anew_misses_nothing(data: Path) -> None:
    InlineRun(script(data, "out", "more"), data / "checkpoint").run(3)
    shutil.rmtree(data / "out" / "more")
    cold()
    InlineRun(script(data), data / "checkpoint").run(1)
    shutil.move(data / "out" / "sums", data / "out" / "elsewhere")
    text = script(data).replace("out/sums", "out/other")
    cold()
    assert InlineRun(text, data / "checkpoint").run().ended


def test_what_was_backfilled_is_missed_too(data: Path) -> None:
    InlineRun(script(data), data / "checkpoint").run(3)
    cold()
    both = script(data, "out", "late")
    InlineRun(both, data / "checkpoint", backfilled=True).run(1)
    shutil.rmtree(data / "out" / "late")
    assert "query late" in refused(data, both)


class Part:
    leaves_parts = True


def test_the_record_is_small_and_exact(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    sinks = {"q": Part(), "r": Part()}
    parts = ResultParts(folder)
    for batch in range(2_100):
        parts.note(batch, {"q": batch % 7, "r": 1}, sinks)  # type: ignore[arg-type]
    parts.note(2_099, {"q": 0, "r": 1}, sinks)  # type: ignore[arg-type]
    again = ResultParts(folder)
    assert again.of("q") == [batch for batch in range(2_099) if batch % 7]
    assert again.of("r") == list(range(2_100))
    assert sorted(p.name for p in (tmp_path / "results").iterdir()) == ["000000.json", "000001.json", "000002.json"]
    assert all(p.stat().st_size < 4_000 for p in (tmp_path / "results").iterdir())
    again.keep_only({"r"})
    assert ResultParts(folder).of("q") == []


@pytest.mark.parametrize("name", ["notes.txt", "penstock", "spark"])
def test_a_folder_that_holds_something_else_is_no_checkpoint(tmp_path: Path, name: str) -> None:
    """A package called penstock, say: a first start removes what is left of an earlier one."""
    place = tmp_path / "mine"
    (place / name).mkdir(parents=True)
    (place / name / "precious.py").write_text("x = 1")
    session = Session()
    session.execute("CREATE STREAM S (ts BIGINT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;")
    session.execute("CREATE QUERY q INTO MEMORY () AS SELECT * FROM S [NOW];")
    with pytest.raises(PenstockError, match=f"no checkpoint: it holds {name}") as told:
        session.start(str(place))
    assert told.value.code == "P0608"
    assert [p.name for p in place.iterdir()] == [name] and (place / name / "precious.py").exists()
    with pytest.raises(PenstockError) as told:
        session.query("SELECT * FROM S [NOW]").to_dataframe(str(place))
    assert told.value.code == "P0608" and (place / name / "precious.py").exists()
