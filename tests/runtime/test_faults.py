"""What breaks under a run: a clear error or a recovery, never half a result, never a traceback."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import InlineRun, cold, write_files

from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.physical.elements import encode
from penstock.physical.execution.marks import StageMarks
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.runtime.spark.checkpoint.epochs import FORMAT as EPOCH_FORMAT
from penstock.runtime.spark.checkpoint.epochs import OFFSET
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.state_files import StateFiles
from penstock.runtime.spark.worker import stage
from penstock.runtime.state.chunk_files import FORMAT as STATE_FORMAT
from penstock.runtime.state.chunk_files import read_manifest
from penstock.runtime.state.shard_manifest import ShardManifest

FILES = 6


def script(tmp: Path, out: str = "out", more: str = "", data: str = "data", format_: str = "parquet") -> str:
    return f"""SET max_batch_bytes = 1; SET shards = 2; {more}
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp / data}', format '{format_}')
      TIMESTAMP BY ts UNIT SECOND;
    CREATE RELATION R (k INT, name BIGINT) FROM MEMORY (); INSERT INTO R VALUES (0, 10), (1, 11), (2, 12);
    CREATE QUERY sums INTO FILES (path '{tmp / out / "sums"}', format 'parquet') AS
      SELECT k, SUM(x) AS s FROM S [RANGE 45 SECONDS] GROUP BY k;
    CREATE QUERY named INTO FILES (path '{tmp / out / "named"}', format 'parquet') AS
      SELECT DISTINCT name, x FROM S [RANGE 25 SECONDS], R WHERE S.k = R.k;"""


def rows(tmp: Path, out: str) -> list[str]:
    tables = [read_result(str(tmp / out / name)) for name in ("sums", "named")]
    return [line for table in tables for line in sorted(map(repr, table.to_pylist()))]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp = tmp_path_factory.mktemp("undisturbed")
    write_files(tmp / "data", range(FILES))
    InlineRun(script(tmp, "calm"), tmp / "calm-checkpoint").run()
    return tmp


@pytest.fixture
def calm(tmp_path: Path, undisturbed: Path) -> Path:
    shutil.copytree(undisturbed / "data", tmp_path / "data")
    (tmp_path / "calm").symlink_to(undisturbed / "calm")
    cold()
    return tmp_path


# -- a full disk ------------------------------------------------------------------------------------------------------


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may grow beyond `size`: what a full disk looks like to a writer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_run_keeps_its_name_from_its_first_batch_on(calm: Path) -> None:
    """By it a topic and a table know what has been written."""
    first = InlineRun(script(calm), calm / "checkpoint").run(0, crash="delivered")
    again = InlineRun(script(calm), calm / "checkpoint")
    again.rounds.stop()
    (name,) = {sink.run for sink in first.sinks.values()}
    assert name and {sink.run for sink in again.sinks.values()} == {name}


@pytest.mark.parametrize("size", [0, 300, 2_000])
def test_a_disk_that_takes_no_more(calm: Path, size: int) -> None:
    InlineRun(script(calm), calm / "checkpoint").run(3)
    run = InlineRun(script(calm), calm / "checkpoint")
    with largest_file(size), pytest.raises(PenstockError) as told:
        run.step()
        run.step()
    run.rounds.stop()
    assert told.value.code in ("P0601", "P0502") and "free space" in (told.value.hint or "")
    cold()
    InlineRun(script(calm), calm / "checkpoint").run()
    assert rows(calm, "out") == rows(calm, "calm")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own that is soon full."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("full", ["checkpoint", "out"])
def test_a_disk_that_is_full(calm: Path, small_disk: Path, full: str) -> None:
    (calm / full).symlink_to(small_disk)
    InlineRun(script(calm), calm / "checkpoint").run(2)
    ballast = small_disk / ".ballast"
    room = shutil.disk_usage(small_disk).free
    ballast.write_bytes(b"\0" * room)
    with pytest.raises(PenstockError) as told:
        InlineRun(script(calm), calm / "checkpoint").run(2)
    assert told.value.code == ("P0601" if full == "checkpoint" else "P0502")
    ballast.unlink()
    cold()
    InlineRun(script(calm), calm / "checkpoint").run()
    assert rows(calm, "out") == rows(calm, "calm")


# -- a damaged checkpoint ---------------------------------------------------------------------------------------------


def _flip(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def _cut(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data)) if data else 0])


def _lose(path: Path, draw: random.Random) -> None:
    path.unlink()


DAMAGE: tuple[Callable[[Path, random.Random], None], ...] = (_flip, _cut, _lose)


def files_of(checkpoint: Path) -> list[Path]:
    """What must not be damaged unnoticed: all but letters, and what a start writes anew."""
    root = checkpoint / "penstock"
    spared = {"dead-letters", "job.pickle"}
    return sorted(p for p in root.rglob("*") if p.is_file() and p.relative_to(root).parts[0] not in spared)


def survives(tmp: Path, checkpoint: Path) -> str:
    """The code of the error with which the run stops, or empty when it comes to the right end."""
    cold()
    try:
        run = InlineRun(script(tmp), checkpoint).run()
    except PenstockError as error:
        return error.code
    assert run.ended
    assert rows(tmp, "out") == rows(tmp, "calm")
    return ""


def damage_all(calm: Path, chosen: Callable[[list[Path]], list[tuple[Path, int]]]) -> dict[str, str]:
    """Damage one file after the other, each time in a copy of the same checkpoint."""
    InlineRun(script(calm), calm / "whole").run(3, "sinks")
    shutil.copytree(calm / "out", calm / "whole-out")
    draw = random.Random(7)
    found = {}
    for path, how in chosen(files_of(calm / "whole")):
        for place in ("checkpoint", "out"):
            shutil.rmtree(calm / place, ignore_errors=True)
        shutil.copytree(calm / "whole", calm / "checkpoint")
        shutil.copytree(calm / "whole-out", calm / "out")
        DAMAGE[how](calm / "checkpoint" / path.relative_to(calm / "whole"), draw)
        told = str(path.relative_to(calm / "whole" / "penstock"))
        found[f"{DAMAGE[how].__name__} {told}"] = survives(calm, calm / "checkpoint")
    return found


def test_damage_is_told_or_does_not_matter(calm: Path) -> None:
    def one_of_a_kind(files: list[Path]) -> list[tuple[Path, int]]:
        kinds = {(p.relative_to(calm / "whole" / "penstock").parts[0], p.suffix): p for p in files}
        return [(path, number % 3) for number, path in enumerate(kinds.values())]

    found = damage_all(calm, one_of_a_kind)
    assert len(found) >= 9
    assert set(found.values()) <= {"", "P0605"}, found
    assert "P0605" in found.values()


@pytest.mark.slow
def test_no_damage_goes_unnoticed(calm: Path) -> None:
    found = damage_all(calm, lambda files: [(path, how) for path in files for how in range(3)] * 3)
    assert set(found.values()) <= {"", "P0605"}, found


@pytest.mark.parametrize("how", [_cut, _lose])
def test_damaged_state_stops_the_run_before_it_says_anything(calm: Path, how: Callable[..., None]) -> None:
    InlineRun(script(calm), calm / "checkpoint").run(3)
    before = rows(calm, "out")
    newest = max((calm / "checkpoint" / "penstock" / "state" / "1" / "0").glob("*.json"))
    manifest, _ = read_manifest(newest, Folder(newest.parents[3]).place)
    how(newest.parent / max(manifest.files), random.Random(3))
    assert survives(calm, calm / "checkpoint") == "P0605"
    assert rows(calm, "out") == before


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_rows_of_a_script_are_not_read(calm: Path, how: Callable[..., None]) -> None:
    """What INSERT gave is written again where it is gone, and never read where it is another."""
    text = script(calm, more="CREATE STREAM M (ts BIGINT, k INT, x BIGINT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;")
    text += "INSERT INTO M VALUES " + ", ".join(f"({i}, {i % 3}, {i})" for i in range(100)) + ";"
    text += f"CREATE QUERY given INTO FILES (path '{calm / 'out' / 'given'}') AS SELECT ISTREAM(x) FROM M [NOW];"
    InlineRun(text, calm / "checkpoint").run(0)
    (place,) = (calm / "checkpoint" / "penstock" / "spool").glob("m-*.arrow")
    before = place.read_bytes()
    how(place, random.Random(5))
    cold()
    if how is _lose:
        InlineRun(text, calm / "checkpoint").run()
        assert place.read_bytes() == before
        assert sorted(read_result(str(calm / "out" / "given"))["x"].to_pylist()) == list(range(100))
        return
    with pytest.raises(PenstockError, match="m-") as told:
        InlineRun(text, calm / "checkpoint")
    assert told.value.code == "P0605"


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_piece_of_the_round_in_hand_is_made_again(calm: Path, how: Callable[..., None]) -> None:
    InlineRun(script(calm), calm / "checkpoint").run(3, "sinks")
    lost = max(files_of(calm / "checkpoint"), key=lambda p: (p.parent.parent.name == "rounds", p))
    before = lost.read_bytes()
    how(lost, random.Random(11))
    run = InlineRun(script(calm), calm / "checkpoint")
    run.rounds.stop()
    assert lost.read_bytes() == before
    assert survives(calm, calm / "checkpoint") == ""


def test_a_lost_piece_that_would_be_another_is_told(calm: Path) -> None:
    """Else Spark would read the pieces that are left, or wait for ever for one."""
    InlineRun(script(calm), calm / "checkpoint").run(3, "sinks")
    lost = max(files_of(calm / "checkpoint"), key=lambda p: (p.parent.parent.name == "rounds", p))
    lost.unlink()
    folder = Folder(calm / "checkpoint" / "penstock")
    folder.write_mark(OFFSET, {**folder.read_mark(OFFSET), "tasks": 2})
    with pytest.raises(PenstockError, match=lost.name) as told:
        InlineRun(script(calm), calm / "checkpoint")
    assert told.value.code == "P0605"


# -- other versions ---------------------------------------------------------------------------------------------------


def _reformat(path: Path, change: Callable[[dict[str, object]], None]) -> None:
    folder = Folder(path.parents[3])
    told = json.loads(folder.read_sealed(path))
    change(told)
    folder.write_sealed(path, json.dumps(told))


def _newest(checkpoint: Path) -> Path:
    return max((checkpoint / "penstock" / "state" / "1" / "0").glob("*.json"))


@pytest.mark.parametrize("number", [STATE_FORMAT - 1, STATE_FORMAT + 1])
def test_a_state_of_another_version(calm: Path, number: int) -> None:
    InlineRun(script(calm), calm / "checkpoint").run(2)
    _reformat(_newest(calm / "checkpoint"), lambda told: told.update(format=number))
    with pytest.raises(PenstockError, match=f"format {number}, this version reads format {STATE_FORMAT}") as caught:
        InlineRun(script(calm), calm / "checkpoint")
    assert caught.value.code == "P0605" and "version" in (caught.value.hint or "")


def test_a_structure_of_another_version(calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    InlineRun(script(calm), calm / "checkpoint").run(2)
    cold()
    monkeypatch.setattr(KeyedTable, "FORMAT", 2)
    run = InlineRun(script(calm), calm / "checkpoint")
    with pytest.raises(
        PenstockError, match="KeyedTable of format 1, this version reads KeyedTable of format 2"
    ) as caught:
        run.step()
    run.rounds.stop()
    assert caught.value.code == "P0605"
    monkeypatch.undo()
    # Nothing was changed: the version that wrote it goes on.
    assert survives(calm, calm / "checkpoint") == ""


@pytest.mark.parametrize("number", [EPOCH_FORMAT - 1, EPOCH_FORMAT + 1])
def test_an_epoch_of_another_version(calm: Path, number: int) -> None:
    InlineRun(script(calm), calm / "checkpoint").run(2)
    path = calm / "checkpoint" / "penstock" / "epochs" / "0000.json"
    content = path.read_text()
    path.write_text(content.replace(f'"format": {EPOCH_FORMAT}', f'"format": {number}'))
    with pytest.raises(PenstockError, match=f"format {number}, this version reads format {EPOCH_FORMAT}") as caught:
        InlineRun(script(calm), calm / "checkpoint")
    assert caught.value.code == "P0605" and "version" in (caught.value.hint or "")
    # Nothing was changed: the version that wrote it goes on.
    path.write_text(content)
    assert survives(calm, calm / "checkpoint") == ""


def test_a_state_whose_epochs_are_gone(calm: Path) -> None:
    InlineRun(script(calm), calm / "checkpoint").run(2)
    (calm / "checkpoint" / "penstock" / "epochs" / "0000.json").unlink()
    assert survives(calm, calm / "checkpoint") == "P0605"


# -- files that change ------------------------------------------------------------------------------------------------


def rewrite(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.slice(0, 5), path)


@pytest.mark.parametrize("change", [rewrite, os.unlink])
def test_a_source_file_that_changes_between_rounds(calm: Path, change: Callable[[Path], None]) -> None:
    InlineRun(script(calm), calm / "checkpoint").run(2)
    files = sorted((calm / "data").iterdir())
    kept = calm / "kept.parquet"
    shutil.copy2(files[3], kept)
    # What has been read already may change as it likes.
    change(files[0])
    change(files[3])
    cold()
    run = InlineRun(script(calm), calm / "checkpoint")
    with pytest.raises(PenstockError) as told:
        run.run()
    assert told.value.code == "P0401" and files[3].name in told.value.message
    shutil.copy2(kept, files[3])
    assert survives(calm, calm / "checkpoint") == ""


def test_a_source_file_that_changes_while_it_is_read(calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = InlineRun(script(calm), calm / "checkpoint")
    victim = sorted((calm / "data").iterdir())[0]
    from penstock.runtime.spark.worker import ingest

    real = ingest.stamp

    def meddle(*arguments: object) -> object:
        os.utime(victim, (1, 1))
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ingest, "stamp", meddle)
    with pytest.raises(PenstockError, match="was rewritten"):
        run.step()
    run.rounds.stop()
    assert not list((calm / "out").rglob("part-*"))


# -- a schema that drifts ---------------------------------------------------------------------------------------------


def _later(tmp: Path, format_: str, columns: dict[str, list[object]]) -> None:
    table = pa.table(columns)
    if format_ == "parquet":
        table = table.set_column(table.schema.get_field_index("k"), "k", table["k"].cast(pa.int32()))
        pq.write_table(table, tmp / "drift" / "b.parquet")
    elif format_ == "csv":
        lines = [",".join(columns), *(",".join(map(str, row.values())) for row in table.to_pylist())]
        (tmp / "drift" / "b.csv").write_text("\n".join(lines) + "\n")
    else:
        (tmp / "drift" / "b.json").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


FIRST = {"ts": [1, 2], "k": [0, 1], "x": [5, 6]}


@pytest.mark.parametrize("format_", ["parquet", "csv", "json"])
@pytest.mark.parametrize(
    ("columns", "good"),
    [
        ({"ts": [3, 4], "k": [0, 1], "x": [7, 8], "new": ["a", "b"]}, 2),
        ({"ts": [3, 4], "k": [0, 1]}, 0),
        ({"ts": [3, 4], "k": [0, 1], "x": ["one", "two"]}, 0),
        ({"x": [7, 8], "ts": [3, 4], "k": [0, 1]}, 2),
    ],
)
def test_a_schema_that_drifts(calm: Path, format_: str, columns: dict[str, list[object]], good: int) -> None:
    """Rows of a later file either count, or are kept out and told: none is lost."""
    (calm / "drift").mkdir()
    _later(calm, format_, FIRST)
    (calm / "drift" / f"b.{format_}").rename(calm / "drift" / f"a.{format_}")
    _later(calm, format_, columns)
    # A json record that lacks a column has NULL there.
    good = 2 if format_ == "json" and "x" not in columns else good
    run = InlineRun(script(calm, data="drift", format_=format_), calm / "checkpoint").run()
    assert run.ended
    last = [r for r in read_result(str(calm / "out" / "named")).to_pylist() if r["ts"] > 2]
    assert len(last) == good
    seen = [Folder(run.folder.root).read_seen(name) for name in run.folder.rounds()]
    read = sum(s["S"].rows for s in seen if "S" in s)
    malformed = sum(sum(s["S"].malformed.values()) for s in seen if "S" in s)
    assert read - malformed == 2 + good
    assert malformed >= (1 if good == 0 else 0)
    letters = list((run.folder.root / "dead-letters").rglob("*.jsonl"))
    assert bool(letters) == (good == 0)


# -- memory and files over time ---------------------------------------------------------------------------------------


def test_files_and_bytes_of_a_long_run_follow_the_window(tmp_path: Path) -> None:
    """300 batches of a chunk each, of which the window holds the last 20: what is written is what is new, and now and
    then what little is left of a file."""
    batch = pa.RecordBatch.from_pydict({"c": pa.array(range(200))})
    sizes: list[tuple[int, int]] = []
    written = 0
    for number in range(300):
        gone = {f"c{number - 20}"} if number >= 20 else set()
        manifest = ShardManifest(f"t{number}", 0, StageMarks({}, {}, {}), {})
        StateFiles(str(tmp_path), 1, 0, number).save(manifest, {f"c{number}": batch}, gone)
        files = list((tmp_path / "state" / "1" / "0").iterdir())
        sizes.append((len(files), sum(p.stat().st_size for p in files)))
        written += sum(p.stat().st_size for p in files if p.name.startswith(f"{number:09d}"))
    assert max(n for n, _ in sizes[200:]) <= max(n for n, _ in sizes[30:100]) <= 26
    assert max(b for _, b in sizes[200:]) <= 1.05 * max(b for _, b in sizes[30:100])
    assert written <= 300 * (len(encode([batch])) + 3_000)


@pytest.mark.slow
def test_state_files_stay_as_few_as_the_window_needs(tmp_path: Path) -> None:
    write_files(tmp_path / "data", range(300), rows=10)
    text = f"""SET max_batch_bytes = 1; SET shards = 1;
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp_path / "data"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND;
    CREATE QUERY q INTO FILES (path '{tmp_path / "q"}', format 'parquet') AS
      SELECT ISTREAM(a.x, b.x AS y) FROM S [RANGE 200 SECONDS] AS a, S [RANGE 300 SECONDS] AS b
      WHERE a.k = b.k AND a.x = b.x;
    CREATE QUERY r INTO FILES (path '{tmp_path / "r"}', format 'parquet') AS
      SELECT k, MAX(x) AS m, COUNT(DISTINCT x) AS d FROM S [RANGE 200 SECONDS] GROUP BY k;"""
    run = InlineRun(text, tmp_path / "checkpoint")
    sizes: list[tuple[int, int]] = []
    written = 0
    while run.pending() and not run.ended:
        run.step()
        files = [p for p in (run.folder.root / "state").rglob("*") if p.is_file()]
        sizes.append((len(files), sum(p.stat().st_size for p in files)))
        written += sum(p.stat().st_size for p in files if p.name.startswith(f"{run.batch - 1:09d}"))
        if run.batch % 40 == 0:
            cold()
    run.rounds.stop()
    assert len(sizes) == 300
    # The windows are full after 30 batches; from then on nothing may grow but with the phase of compaction.
    early, late = sizes[60:150], sizes[210:]
    assert max(n for n, _ in late) <= 1.25 * max(n for n, _ in early)
    assert max(b for _, b in late) <= 1.25 * max(b for _, b in early)
    assert max(n for n, _ in sizes) <= 2 * (48 + 4) * run.job.plan.stages
    # Each batch writes what is new and now and then something over, not all that there is.
    assert written < 0.7 * sum(b for _, b in sizes)


def test_what_is_kept_in_memory_is_bounded(calm: Path) -> None:
    run = InlineRun(script(calm, more="SET state_cache_bytes = '2KB';"), calm / "checkpoint")
    most = 0
    while run.pending() and not run.ended:
        run.step()
        held = [w.bytes for place, w in stage._WARM.items() if place[0] == str(run.folder.root)]
        most = max(most, len(held))
        assert sum(held) <= 2 * 1024
    run.rounds.stop()
    assert most >= 1
    assert rows(calm, "out") == rows(calm, "calm")
