"""A changed script on the same checkpoint: what stayed the same goes on exactly, wherever the run before has died."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from inline_run import CRASHES, InlineRun, cold, write_files

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.query import Start, StartMode
from penstock.algebra.optimizer.optimizer import Planning, optimize
from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.monitoring.progress import QueryCounts
from penstock.runtime.spark.checkpoint import planning_cache
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.hydration.catch_up import past_starts
from penstock.runtime.spark.hydration.past_input import KnownPast
from penstock.runtime.spark.output.totals import RunTotals

FILES = 8
QUERIES = {
    "sums": "SELECT RSTREAM(k, COUNT(*) AS n, SUM(x) AS s) FROM S [RANGE 30 SECONDS SLIDE 10 SECONDS] GROUP BY k",
    "sums_of_few": "SELECT k, SUM(x) AS s FROM S [RANGE 45 SECONDS] WHERE x < 9 GROUP BY k",
    "pairs": "SELECT ISTREAM(a.x, b.x AS y) FROM S [NOW] AS a, S [RANGE 15 SECONDS] AS b WHERE a.k = b.k AND a.x < b.x",
    "best": "SELECT x, k FROM S [RANGE 40 SECONDS] ORDER BY x DESC, k LIMIT 3",
    "values_seen": "SELECT DISTINCT x FROM S [RANGE 9 SECONDS]",
    "last": "SELECT RSTREAM(k, x) FROM S [PARTITION BY k ROWS 2]",
}


def script(tmp: Path, *names: str, out: str = "out", more: str = "", **changed: str) -> str:
    """The script with the queries `names`; `changed`: other texts for some of them."""
    text = f"""SET max_batch_bytes = 1; SET shards = 2; {more}
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp / "data"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND;"""
    for name in names:
        query = changed.get(name) or QUERIES[name]
        text += f"\nCREATE QUERY {name} INTO FILES (path '{tmp / out / name}', format 'parquet') AS {query};"
    return text


def result(tmp: Path, name: str, out: str = "out") -> list[tuple[object, ...]]:
    """The rows of a result, those of one instant in the order of their values."""
    table = read_result(str(tmp / out / name))
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert [r[0] for r in rows] == sorted(r[0] for r in rows)
    return sorted(rows, key=repr)


def progress(run: InlineRun) -> dict[str, QueryCounts]:
    return RunTotals(run.folder).progress(run.job.plan, {}, run.sinks, {}, {}).queries


def check_joined(calm: Path, files: int) -> None:
    """Check that `best` and `pairs`, which joined `sums` after so many files, have read all later ones and no other."""
    cold()
    for number in range(files):
        (calm / "data" / f"part-{number:04d}.parquet").unlink()
    InlineRun(script(calm, "best", "pairs", out="rest"), calm / "rest-checkpoint").run()
    for name in ("best", "pairs"):
        assert result(calm, name) == result(calm, name, "rest")
    assert result(calm, "sums") == result(calm, "sums", "calm")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data, and in the folder `calm` what every query gives when nothing changes."""
    tmp = tmp_path_factory.mktemp("undisturbed")
    write_files(tmp / "data", range(FILES))
    InlineRun(script(tmp, *QUERIES, out="calm"), tmp / "calm-checkpoint").run()
    return tmp


@pytest.fixture
def calm(tmp_path: Path, undisturbed: Path) -> Path:
    """The same for one test."""
    (tmp_path / "data").mkdir()
    for path in (undisturbed / "data").iterdir():
        (tmp_path / "data" / path.name).hardlink_to(path)
    (tmp_path / "calm").symlink_to(undisturbed / "calm")
    cold()
    return tmp_path


def test_queries_come_and_go_and_the_others_go_on(calm: Path) -> None:
    draw = random.Random(5)
    whole = "sums"
    for seed in range(2):
        out, checkpoint = f"out{seed}", calm / f"checkpoint{seed}"
        others = sorted(QUERIES.keys() - {whole})
        for crash in draw.sample(CRASHES, 3):
            # `sums` is there all the time, in any place of the script; the rest is drawn.
            names = [*draw.sample(others, draw.randint(0, 3)), whole]
            draw.shuffle(names)
            InlineRun(script(calm, *names, out=out), checkpoint, overwrite=True).run(draw.randint(0, 3), crash)
            if draw.random() < 0.7:
                cold()
        last = InlineRun(script(calm, whole, out=out), checkpoint).run()
        assert last.ended
        assert result(calm, whole, out) == result(calm, whole, "calm")


@pytest.mark.parametrize(("name", "crash"), list(zip(QUERIES, [None, *CRASHES, "state"], strict=True)))
def test_every_operator_finds_its_state_again(calm: Path, name: str, crash: str | None) -> None:
    other = next(n for n in QUERIES if n != name)
    InlineRun(script(calm, other, name), calm / "checkpoint").run(4, crash)
    cold()
    run = InlineRun(script(calm, name), calm / "checkpoint").run()
    assert run.decision.gone == (other,) and run.decision.fresh == ()
    assert result(calm, name) == result(calm, name, "calm")


def test_panes_that_were_shared_stay_the_panes_of_who_is_left(calm: Path) -> None:
    wide = "SELECT RSTREAM(k, SUM(x) AS {name}) FROM S [RANGE 60 SECONDS SLIDE 20 SECONDS] GROUP BY k"
    three = script(
        calm, "sums", "best", sums=QUERIES["sums"].replace("COUNT(*) AS n, ", ""), best=wide.format(name="s")
    )
    run = InlineRun(three, calm / "checkpoint").run(3)
    assert any(step.queries == {"sums", "best"} and step.stage == 0 for step in run.job.plan.steps)
    cold()
    again = InlineRun(script(calm, "best", best=wide.format(name="s")), calm / "checkpoint").run()
    assert again.decision.fresh == ()
    cold()
    InlineRun(script(calm, "best", out="alone", best=wide.format(name="t")), calm / "alone-checkpoint").run()
    assert result(calm, "best") == result(calm, "best", "alone")


def test_a_start_optimises_every_query_once(calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Algebra] = []

    def noting(root: Algebra, planning: Planning) -> Algebra:
        seen.append(root)
        return optimize(root, planning=planning)

    monkeypatch.setattr(planning_cache, "optimize", noting)
    InlineRun(script(calm, "sums", "pairs", "best"), calm / "checkpoint")
    assert len(seen) == 3


@pytest.mark.parametrize("crash", [None, "between"])
def test_a_new_query_sees_what_comes_from_here_on(calm: Path, crash: str | None) -> None:
    before = InlineRun(script(calm, "sums"), calm / "checkpoint").run(5, crash)
    cold()
    run = InlineRun(script(calm, "best", "sums", "pairs"), calm / "checkpoint").run()
    assert set(run.decision.fresh) == {"best", "pairs"}
    assert "starts afresh and sees only" in run.decision.notices[0] and "is new" in run.decision.notices[0]
    # A round that died was planned with the old sources: the new queries take part in it.
    assert before.decision.epoch.number == 0 and run.decision.epoch.base == 5
    check_joined(calm, 5)


@pytest.mark.parametrize(("batches", "crash"), [(1, "state"), (4, "delivered"), (FILES, None)])
def test_a_query_that_reads_its_past_is_as_if_it_had_always_been(calm: Path, batches: int, crash: str | None) -> None:
    InlineRun(script(calm, "sums"), calm / "checkpoint").run(batches, crash)
    cold()
    names = [name for name in QUERIES if name != "sums"]
    run = InlineRun(script(calm, *names, "sums"), calm / "checkpoint", backfilled=True)
    assert run.decision.epoch.backfill == names
    counts = progress(run)
    for name in names:
        assert counts[name].rows == counts[name].backfilled == len(result(calm, name))
    assert counts["sums"].backfilled == 0
    run.run()
    for name in QUERIES:
        assert result(calm, name) == result(calm, name, "calm"), name


def test_a_backfill_that_breaks_off_is_done_again(calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    InlineRun(script(calm, "sums"), calm / "checkpoint").run(6)
    cold()
    from penstock.runtime.spark.hydration import catch_up as module

    done = []

    def break_off(*arguments: object) -> object:
        done.append(arguments)
        if len(done) > 1:
            raise KeyboardInterrupt
        return real(*arguments)  # type: ignore[arg-type]

    real = module.run_round
    monkeypatch.setattr(module, "run_round", break_off)
    with pytest.raises(KeyboardInterrupt):
        InlineRun(script(calm, "sums", "best"), calm / "checkpoint", backfilled=True)
    monkeypatch.undo()
    cold()
    # Also without the option: the epoch has begun.
    InlineRun(script(calm, "sums", "best"), calm / "checkpoint").run()
    for name in ("sums", "best"):
        assert result(calm, name) == result(calm, name, "calm")


def test_what_does_not_matter_changes_nothing(calm: Path) -> None:
    InlineRun(script(calm, "sums", "pairs"), calm / "checkpoint").run(3)
    cold()
    other = script(
        calm,
        "pairs",
        "sums",
        pairs="""-- the same in other words
        SELECT ISTREAM(l.x, r.x AS y) FROM S [NOW] l,
          S [RANGE 15 SECONDS] r WHERE l.k = r.k AND l.x < r.x""",
    )
    run = InlineRun(other, calm / "checkpoint")
    assert (run.decision.kind.value, run.decision.epoch.number, run.decision.notices) == ("same", 0, ())
    run.run()
    for name in ("sums", "pairs"):
        assert result(calm, name) == result(calm, name, "calm")


def test_a_changed_query_needs_room_for_its_result(calm: Path) -> None:
    InlineRun(script(calm, "sums", "best"), calm / "checkpoint").run(4)
    changed = script(calm, "sums", "best", best=QUERIES["best"].replace("LIMIT 3", "LIMIT 2"))
    with pytest.raises(PenstockError) as caught:
        InlineRun(changed, calm / "checkpoint")
    assert caught.value.code == "P0501"
    cold()
    # Refused, and nothing lost: the old script goes on.
    InlineRun(script(calm, "sums", "best"), calm / "checkpoint").run(2)
    cold()
    run = InlineRun(changed, calm / "checkpoint", overwrite=True).run()
    assert run.decision.fresh == ("best",) and "query best has changed" in run.decision.notices[0]
    assert result(calm, "sums") == result(calm, "sums", "calm")
    assert min(row[0] for row in result(calm, "best")) == 6 * 20


def test_only_the_sink_has_changed(calm: Path) -> None:
    InlineRun(script(calm, "best"), calm / "checkpoint").run(4)
    cold()
    run = InlineRun(script(calm, "best", out="elsewhere"), calm / "checkpoint").run()
    assert run.decision.fresh == () and run.decision.kept_sinks == frozenset()
    assert sorted(result(calm, "best") + result(calm, "best", "elsewhere"), key=repr) == result(calm, "best", "calm")


def test_a_change_is_taken_back_before_anything_came_of_it(calm: Path) -> None:
    InlineRun(script(calm, "sums", "best"), calm / "checkpoint").run(4)
    cold()
    InlineRun(script(calm, "sums", "pairs"), calm / "checkpoint").run(0, "sinks")
    cold()
    run = InlineRun(script(calm, "sums", "best"), calm / "checkpoint").run()
    assert run.decision.fresh == () and run.decision.epoch.number == 2
    for name in ("sums", "best"):
        assert result(calm, name) == result(calm, name, "calm")


def test_old_epochs_are_forgotten_once_the_new_one_is_committed(calm: Path) -> None:
    InlineRun(script(calm, "sums", "pairs"), calm / "checkpoint").run(4)
    cold()
    run = InlineRun(script(calm, "sums"), calm / "checkpoint")
    root = calm / "checkpoint" / "penstock"
    run.step()
    assert sorted(p.name for p in (root / "epochs").iterdir()) == ["0000.json", "0001.json"]
    run.step()
    run.rounds.stop()
    assert [p.name for p in (root / "epochs").iterdir()] == ["0001.json"]
    held = {name for p in root.glob("state/*/*/*.json") for name in _synopses(p)}
    mine = {record["key"] for record in run.decision.epoch.queries["sums"].operators}
    assert {name.partition(".")[0] for name in held} <= mine


def _synopses(path: Path) -> list[str]:
    from penstock.runtime.spark.checkpoint.folder import Folder
    from penstock.runtime.state.chunk_files import read_manifest

    manifest, _ = read_manifest(path, Folder(path.parents[3]).place)
    return list(manifest.stage.synopses)


SECOND = """CREATE STREAM T (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{path}', format 'parquet')
  TIMESTAMP BY ts UNIT SECOND{more};
CREATE QUERY of_t INTO FILES (path '{out}', format 'parquet') AS
  SELECT ISTREAM(COUNT(*) AS n) FROM T [RANGE 5 SECONDS];"""


def test_sources_come_and_go(calm: Path) -> None:
    write_files(calm / "more", range(4))
    alone = SECOND.format(path=calm / "more", out=calm / "alone" / "of_t", more="")
    both = SECOND.format(path=calm / "more", out=calm / "out" / "of_t", more="")
    InlineRun("SET max_batch_bytes = 1; SET shards = 2;" + alone, calm / "alone-checkpoint").run()
    cold()
    InlineRun(script(calm, "sums"), calm / "checkpoint").run(3, "between")
    cold()
    InlineRun(script(calm, "sums") + both, calm / "checkpoint").run(3, "state")
    cold()
    # The source is declared anew: it is read again from its beginning, by what reads it then.
    anew = SECOND.format(path=calm / "more", out=calm / "out" / "of_t", more=" ORDER WITHIN 1 SECONDS")
    run = InlineRun(script(calm, "sums") + anew, calm / "checkpoint", overwrite=True)
    assert run.decision.fresh == ("of_t",)
    run.run()
    assert result(calm, "of_t") == result(calm, "of_t", "alone")
    assert result(calm, "sums") == result(calm, "sums", "calm")


def test_rows_of_the_script_are_part_of_it(tmp_path: Path) -> None:
    def text(*values: int) -> str:
        rows = ", ".join(f"({v}, {v})" for v in values)
        return f"""SET shards = 1;
        CREATE STREAM S (ts BIGINT, x INT) FROM MEMORY () TIMESTAMP BY ts; INSERT INTO S VALUES {rows};
        CREATE RELATION R (x INT, y INT) FROM MEMORY (); INSERT INTO R VALUES (1, 10), (2, 20);
        CREATE QUERY a INTO FILES (path '{tmp_path / "a"}', format 'parquet') AS SELECT ISTREAM(x) FROM S [NOW];
        CREATE QUERY b INTO FILES (path '{tmp_path / "b"}', format 'parquet') AS SELECT R.x + T.y AS z FROM R, R T;"""

    InlineRun(text(1, 2), tmp_path / "checkpoint").run()
    cold()
    run = InlineRun(text(1, 2, 3), tmp_path / "checkpoint", overwrite=True)
    assert run.decision.fresh == ("a",)
    run.run()
    assert [r[1] for r in result(tmp_path, "a", ".")] == [1, 2, 3]
    assert sorted(r[2] for r in result(tmp_path, "b", ".")) == [11, 12, 21, 22]


@pytest.mark.parametrize(
    ("setting", "told"),
    [("SET shards = 3;", "shards 2, not 3"), ("SET state_strategy = 'direct';", "state_strategy pattern, not direct")],
)
def test_settings_that_the_state_does_not_fit(calm: Path, setting: str, told: str) -> None:
    InlineRun(script(calm, "sums"), calm / "checkpoint").run(2)
    with pytest.raises(PenstockError, match=told) as caught:
        InlineRun(script(calm, "sums", more=setting), calm / "checkpoint")
    assert caught.value.code == "P0606" and "SET" in (caught.value.hint or "")


def test_a_start_that_fails_leaves_no_result_open(calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.connectors.sinks.files import FilesSink
    from penstock.runtime.spark import start

    def fail(*_: object) -> None:
        raise PenstockError("P0601", "it does not start")

    closed: list[str] = []
    monkeypatch.setattr(FilesSink, "close", lambda sink: closed.append(sink.query.name))
    monkeypatch.setattr(start, "prepare", fail)
    with pytest.raises(PenstockError, match="it does not start"):
        InlineRun(script(calm, "sums", "best"), calm / "checkpoint")
    assert sorted(closed) == ["best", "sums"]


def test_a_start_that_came_to_nothing_is_no_obstacle(calm: Path) -> None:
    InlineRun(script(calm, "sums"), calm / "checkpoint").run(0)
    cold()
    InlineRun(script(calm, "best", more="SET state_strategy = 'direct';"), calm / "checkpoint").run()
    assert result(calm, "best") == result(calm, "best", "calm")


def test_a_past_in_system_time_cannot_be_read(calm: Path) -> None:
    clocked = script(calm, "best").replace("TIMESTAMP BY ts UNIT SECOND", "SYSTEM TIME")
    InlineRun(clocked, calm / "checkpoint", live=False).run(2)
    cold()
    with pytest.raises(PenstockError, match="SYSTEM TIME") as caught:
        InlineRun(clocked.replace("LIMIT 3", "LIMIT 2"), calm / "checkpoint", backfilled=True, live=False)
    assert caught.value.code == "P0607"


@pytest.mark.parametrize(
    "where",
    [
        "KAFKA (bootstrap 'localhost:1', topic 't', format 'json')",
        "POSTGRES (dbname 'd', table 't', version 'ts', poll '1 second')",
    ],
)
def test_a_past_that_is_not_kept_cannot_be_read(where: str, tmp_path: Path) -> None:
    text = f"CREATE STREAM S (ts BIGINT, x INT) FROM {where} TIMESTAMP BY ts; CREATE QUERY q AS SELECT x FROM S [NOW];"
    known = KnownPast(Folder(tmp_path), {}, Offset(3, {"S": 3}, {"S": 9}))
    with pytest.raises(PenstockError, match="what has been read of S is not kept") as caught:
        past_starts(known, plan_queries(bind_script(text).queries), {"q": Start(StartMode.BEGINNING)}, {"S": None})
    assert caught.value.code == "P0607"


def test_the_epoch_is_told_as_data_and_without_secrets(calm: Path) -> None:
    import json

    InlineRun(script(calm, "sums"), calm / "checkpoint").run(1)
    told = json.loads((calm / "checkpoint" / "penstock" / "epochs" / "0000.json").read_text())["epoch"]
    assert "SELECT RSTREAM(k, COUNT(*)" in told["queries"]["sums"]["text"]
    assert {o["operator"] for o in told["queries"]["sums"]["operators"]} >= {"Scan", "TimeWindow", "Output"}


def test_more_is_in_the_rows_than_nothing(calm: Path) -> None:
    """The results that are compared above are worth comparing."""
    for name in QUERIES:
        assert len(result(calm, name, "calm")) > 20
    assert isinstance(read_result(str(calm / "calm" / "sums")), pa.Table)
