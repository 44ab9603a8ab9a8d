"""A registration costs what it adds: what stands is neither planned nor written nor read again."""

from __future__ import annotations

import gc
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import inline_run
import pyarrow.parquet as pq
import pytest
from inline_run import InlineRun, cold, declared, write_files
from test_change import calm, result, undisturbed
from test_change import script as changed_script

from penstock.algebra.nodes.query import Query
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.execution.executor import StageExecutor
from penstock.physical.execution.step_graph import read_in_place
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning import planner
from penstock.physical.planning.plan_parts import joined, with_standing
from penstock.physical.planning.planner import Generation, plan_generations
from penstock.physical.planning.sharing import MOVED
from penstock.runtime.spark.checkpoint import planning_cache
from penstock.runtime.spark.checkpoint.epochs import (
    Epoch,
    PausedRecord,
    QueryRecord,
    Received,
    SourceRecord,
    epoch_numbers,
    latest_epoch,
    read_epoch,
    write_epoch,
)
from penstock.runtime.spark.checkpoint.folder import Folder, Intake, Job
from penstock.runtime.spark.checkpoint.place import forget_older
from penstock.runtime.spark.checkpoint.planning_cache import PlanningCache, PlanningChoice
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.runtime.spark.worker import job_files
from penstock.runtime.spark.worker.job_files import forget_jobs, forget_parts, load_job, read_job, write_job

__all__ = ["calm", "undisturbed"]

STANDING = 32
#: Registrations, each dropped again.
CYCLES = 10
#: Calls of functions in Python for each query that stays as it is in a change: look-ups, most of them to find the
#: fingerprint of a query whose script was bound anew. Planning one takes thousands.
MOST_CALLS = 105
STREAM = "CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{path}', format 'parquet') TIMESTAMP BY ts;"


def script(tmp: Path, numbers: Sequence[int]) -> str:
    """Sums over one stream by different predicates, in as many queries as there are numbers."""
    text = "SET max_batch_bytes = 1; SET shards = 2;" + STREAM.format(path=tmp / "data")
    for n in numbers:
        text += f"""CREATE QUERY q{n} INTO FILES (path '{tmp / "out" / str(n)}', format 'parquet') AS
            SELECT k, SUM(x) AS s FROM S [RANGE 30 SECONDS] WHERE x <> {n} GROUP BY k;"""
    return text


def queries(*texts: str) -> list[Query]:
    """Optimized queries q0, q1, ..."""
    bound = bind_script(
        STREAM.format(path="p")
        + "CREATE RELATION R (k INT, y BIGINT) FROM FILES (path 'r', format 'parquet');"
        + "".join(f"CREATE QUERY q{i} AS {text};" for i, text in enumerate(texts))
    )
    return [replace(query, root=optimize(query.root)) for query in bound.queries]


TEXTS = (
    "SELECT k, SUM(x) AS s FROM S [RANGE 30 SECONDS] WHERE x > 3 GROUP BY k",
    "SELECT x FROM S [RANGE 9 SECONDS] WHERE x > 3",
    "SELECT DISTINCT x FROM S [RANGE 9 SECONDS] WHERE k = 1",
    "SELECT a.x, b.x AS y FROM S [RANGE 9 SECONDS] AS a, S [RANGE 15 SECONDS] AS b WHERE a.k = b.k",
    "SELECT S.x, R.y FROM S [RANGE 9 SECONDS], R WHERE S.k = R.k",
    "SELECT MAX(x) AS m FROM S [RANGE 5 SECONDS] WHERE x < 9",
)


def shape(plan: Plan) -> list[object]:
    """What a plan computes, without the numbers of its steps."""
    keys = step_keys(plan)
    steps = [
        (keys[s.id], s.stage, s.sources, s.queries, [(keys[i.step], i.exchange) for i in s.inputs]) for s in plan.steps
    ]
    rows = {name: condition.fingerprint for name, condition in plan.source_predicates.items()}
    return [steps, list(plan.queries), plan.sources, plan.statics.keys(), plan.periods, plan.stages, rows, plan.births]


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_that_grows_is_the_plan_of_its_queries(seed: int) -> None:
    draw = random.Random(seed)
    cache, known = PlanningCache(), queries(*TEXTS)
    choice = PlanningChoice({}, Strategy.PATTERN.value)
    standing: dict[int, list[Query]] = {}
    used: dict[int, Plan] = {}
    for birth in range(12):
        free = [q for q in known if not any(q in group for group in standing.values())]
        if free:
            standing[birth] = draw.sample(free, draw.randint(1, min(4, len(free))))
        if draw.random() < 0.6 and standing:
            group = standing[draw.choice(sorted(standing))]
            group.remove(draw.choice(group))
        standing = {b: group for b, group in standing.items() if group}
        generations = [Generation(b, tuple(group), Statistics()) for b, group in sorted(standing.items())]
        before = {b: (part.queries, part.plan) for b, part in zip(sorted(used), cache.parts_of(used), strict=True)}
        made = [cache.part(g.birth, g.queries, choice, lambda g=g: g) for g in generations]
        parts = [part.plan for part in made]
        for g, part in zip(generations, made, strict=True):
            # Also one of which queries have gone, whose steps keep their numbers.
            alone = planner.plan_part(g, Strategy.PATTERN)
            nodes = part.part.nodes
            assert list(map(str, nodes.values())) == list(map(str, alone.nodes.values()))
            assert nodes.keys() == part.plan.by_id.keys()
            assert [one.token for one in part.part.sharable.values()] == [one.token for one in alone.sharable.values()]
            keys = step_keys(part.plan)
            assert part.operators == {
                name: [
                    {
                        "step": s.id,
                        "key": keys[s.id],
                        "stage": s.stage,
                        "operator": s.spec.title,
                        "inputs": [i.step for i in s.inputs],
                    }
                    for s in part.plan.steps
                    if name in s.queries
                ]
                for name in part.plan.queries
            }
        cache.keep_parts({g.birth: part for g, part in zip(generations, made, strict=True)})
        for g, part in zip(generations, parts, strict=True):
            # What stays is the same object, with the same numbers.
            assert g.birth not in before or (before[g.birth][1] is part) == (before[g.birth][0] == g.queries)
        used = {g.birth: part for g, part in zip(generations, parts, strict=True)}
        assert shape(joined(parts)) == shape(plan_generations(generations))
        numbers = [step.id for part in parts for step in part.steps]
        assert len(set(numbers)) == len(numbers)


def test_a_registration_plans_and_writes_its_own_query_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path / "data", range(7))
    run = InlineRun(script(tmp_path, range(STANDING)), tmp_path / "checkpoint", live=True).go(1)
    lowered: list[str] = []
    pickled: list[object] = []
    plan_part, dump = planning_cache.plan_part, job_files.pickled

    def planning(generation: Generation, *rest: Any) -> Any:
        lowered.extend(query.name for query in generation.queries)
        return plan_part(generation, *rest)

    def pickling(value: object) -> bytes:
        pickled.append(value)
        return dump(value)

    monkeypatch.setattr(planning_cache, "plan_part", planning)
    monkeypatch.setattr(job_files, "pickled", pickling)
    run.change(script(tmp_path, range(STANDING + 1)))
    assert lowered == [f"q{STANDING}"]
    parts = [value for value in pickled if isinstance(value, Plan)]
    assert [set(part.queries) for part in parts] == [{f"q{STANDING}"}]
    told = json.loads((run.folder.root / "epochs" / "0001.json").read_text())["epoch"]
    assert (told["bases"], list(told["queries"]), list(told["sources"])) == ([0], [f"q{STANDING}"], [])
    assert read_epoch(run.folder, 1) == run.epoch
    # The record of the others stays readable until none refers to it.
    run.go(2)
    assert epoch_numbers(run.folder) == [0, 1]
    run.change(script(tmp_path, range(STANDING // 2)))
    run.go(2)
    assert epoch_numbers(run.folder) == [2]
    # Nor are those planned again that began together with the ones that are dropped.
    assert lowered == [f"q{STANDING}"]
    assert all(isinstance(step.queries, frozenset) for step in run.job.plan.steps)
    assert latest_epoch(run.folder) == run.epoch


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", [False, True])
def test_a_start_goes_on_with_an_epoch_that_refers_to_another(tmp_path: Path, crash: bool) -> None:
    write_files(tmp_path / "data", range(7))
    run = InlineRun(script(tmp_path, range(STANDING)), tmp_path / "checkpoint", live=True).go(1)
    run.change(script(tmp_path, range(STANDING + 1))).go(2 if crash else 1)
    run.change(script(tmp_path, range(STANDING + 2)), crash=crash)
    if not crash:
        run.go(1).rounds.stop()
    cold()
    again = InlineRun(script(tmp_path, range(STANDING + 2)), tmp_path / "checkpoint", live=True)
    assert again.decision.kind.value == "same" and again.epoch.full is not None
    assert {record.birth for record in again.epoch.queries.values()} == {0, 1, 2}
    again.run()
    assert again.ended


# -- epochs -----------------------------------------------------------------------------------------------------------


def test_a_worker_that_outlives_a_start_continues_with_the_next(calm: Path) -> None:
    """Steps have other numbers there, though the script is the same and so is the state."""
    run = InlineRun(changed_script(calm, "pairs", "sums", "best"), calm / "checkpoint", live=True).go(2)
    run.change(changed_script(calm, "sums", "best")).go(2).rounds.stop()
    again = InlineRun(changed_script(calm, "sums", "best"), calm / "checkpoint", live=True)
    assert again.decision.kind.value == "same"
    assert {step.id for step in again.job.plan.steps} != {step.id for step in run.job.plan.steps}
    again.run()
    for name in ("sums", "best"):
        assert result(calm, name) == result(calm, name, "calm")


def test_versions_that_come_and_go_leave_nothing(tmp_path: Path) -> None:
    """A server registers and drops for months, with a round between two commands."""
    declares = STREAM.format(path=tmp_path / "data")
    write_files(tmp_path / "data", range(1))

    def text(*numbers: int) -> str:
        made = (
            f"CREATE QUERY q{n} INTO RESULTS () AS SELECT k, SUM(x) AS s FROM S [RANGE 3 SECONDS]"
            f" WHERE x <> {n} GROUP BY k;"
            for n in numbers
        )
        return "SET shards = 1;" + declares + "".join(made)

    run = InlineRun(text(0), tmp_path / "checkpoint", live=True, standing=True, declared=declared(declares)).go(1)

    def cycle(number: int) -> None:
        run.change(text(0, number)).go(1)
        run.change(text(0)).go(1)

    def counted() -> tuple[Counter[str], Counter[str]]:
        gc.collect()
        objects = Counter(type(one).__name__ for one in gc.get_objects())
        root = run.folder.root
        files = Counter(path.parent.relative_to(root).parts[0] for path in root.rglob("*") if path.parent != root)
        return objects, files

    for number in range(1, 5):
        cycle(number)
    objects, files = counted()
    for number in range(5, 5 + CYCLES):
        cycle(number)
    later = counted()
    assert later[1] == files
    # The results log knows the query until its bounds say otherwise, and the history has a block of rounds.
    grown = {name: count / CYCLES for name, count in (later[0] - objects).items() if count >= CYCLES}
    planning = {
        "Plan",
        "Step",
        "Epoch",
        "QueryRecord",
        "PlannedPart",
        "RecordedPart",
        "StepGraph",
        "Query",
        "Call",
        "StreamScan",
        "Lowered",
    }
    assert not planning & grown.keys(), grown
    run.rounds.stop()


def epoch(number: int, names: Sequence[str]) -> Epoch:
    """An epoch with queries of these names."""
    records = {n: QueryRecord(f"f{n}", 0, "s", f"SELECT {n}", [{"step": 1, "key": n}], id=n) for n in names}
    return Epoch(
        number,
        3 * number,
        records,
        {"S": SourceRecord("f", 0)},
        1,
        2,
        "pattern",
        False,
        "files",
        {"0": {"sources": {}, "shards": None, "grains": {}}},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "penstock")
    made.begin_run()
    return made


def test_epochs_are_read_as_they_were_written(folder: Folder) -> None:
    """Whatever changes from one to the next, and however often the epoch changes to which they refer."""
    draw = random.Random(5)
    names = [f"n{i}" for i in range(60)]
    current = epoch(0, names)
    write_epoch(folder, current)
    whole = 0
    for number in range(1, 40):
        dropped = set(draw.sample(names, min(len(names) // 2, draw.choice((0, 1, 2, 30)))))
        names = [name for name in names if name not in dropped] + [
            f"n{number}x{i}" for i in range(draw.choice((0, 1, 9)))
        ]
        following = replace(
            epoch(number, names),
            queries={n: current.queries.get(n, r) for n, r in epoch(number, names).queries.items()},
            paused={"p": PausedRecord("s", Received(7), draw.choice((None, QueryFailure("P0601", "it failed"))))}
            if number % 3
            else {},
            command=number,
            silent={names[0]: 3},
        )
        current = following.after(current)
        write_epoch(folder, current)
        found = read_epoch(folder, number)
        assert found == current and list(found.silent) == list(current.silent)
        assert (found.full is None) == (current.full is None)
        whole += current.full is None
        if draw.random() < 0.3:
            # A command that changes no query is written to the same file.
            current = replace(current, command=100 + number)
            write_epoch(folder, current)
            assert read_epoch(folder, number) == current
        forget_older(folder, job(Plan((), {}, {}), epoch=number), ())
        assert len(epoch_numbers(folder)) == 1 + len(current.bases)
    assert 3 < whole < 36


def test_few_records_are_written_for_many_changes(folder: Folder) -> None:
    """Registrations one by one write a number of records in proportion to theirs, whole files included."""
    count = 400
    current, written, depths = epoch(0, ["n"]), 0, Counter[int]()
    for number in range(1, count):
        records = current.queries | epoch(number, [f"n{number}"]).queries
        current = replace(current, number=number, queries=records, full=None).after(current)
        written += len(current.differences["queries"][0] if current.full else records)
        depths[len(current.bases)] += 1
    assert written < 14 * count
    assert depths[2] > depths[1] > depths[0] > 10, depths


def test_an_epoch_whose_other_part_is_gone_or_changed(folder: Folder) -> None:
    first = epoch(0, [f"n{i}" for i in range(30)])
    second = replace(first, number=1, command=7).after(first)
    assert second.full is first
    for one in (first, second):
        write_epoch(folder, one)
    path = folder.root / "epochs" / "0000.json"
    whole = path.read_text()
    for content in (whole.replace("SELECT n7", "SELECT n8"), "", whole.replace('"checksum"', '"sum"'), whole[:-9]):
        path.write_text(content)
        with pytest.raises(PenstockError) as caught:
            read_epoch(folder, 1)
        assert caught.value.code == "P0605"
    path.unlink()
    with pytest.raises(PenstockError) as caught:
        read_epoch(folder, 1)
    assert caught.value.code == "P0605"
    # One may refer to another that refers to a whole one. A longer chain, and one that refers to itself, or to an epoch
    # that has been written otherwise since, are no epochs of this program.
    path.write_text(whole)
    third = replace(second, number=2, full=second)
    write_epoch(folder, third)
    assert read_epoch(folder, 2) == third
    write_epoch(folder, replace(second, number=3, full=third))
    with pytest.raises(PenstockError, match="does not have all records"):
        read_epoch(folder, 3)
    write_epoch(folder, replace(second, number=1, full=second))
    with pytest.raises(PenstockError, match="it refers to epoch 1"):
        read_epoch(folder, 1)
    write_epoch(folder, replace(second, full=None))
    with pytest.raises(PenstockError, match="does not have all records"):
        read_epoch(folder, 2)


# -- what workers read ------------------------------------------------------------------------------------------------


def job(plan: Plan, epoch: int = 0) -> Job:
    return Job(plan, 2, (0, 1), False, Intake((), frozenset(), 1), epoch=epoch)


def generations(*groups: Sequence[Query]) -> list[Generation]:
    return [Generation(birth, group, Statistics()) for birth, group in enumerate(groups)]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that a worker reads of a job."""
    found: list[str] = []
    verified: Callable[[Path, bytes], bytes] = job_files._verified

    def noting(path: Path, digest: bytes) -> bytes:
        found.append(path.parent.name)
        return verified(path, digest)

    monkeypatch.setattr(job_files, "_verified", noting)
    return found


def test_a_worker_reads_the_parts_that_are_new(folder: Folder, reads: list[str]) -> None:
    first, second, third, *_ = queries(*TEXTS)
    (unread,) = {s.name: s for s in plan_generations(generations([second])).sources.values()}.values()
    unread = replace(unread, name="T")
    grown = plan_generations(generations([first], [second]))
    before = with_standing(grown, [unread])
    # A declaration may have changed since the queries that stand began.
    before = replace(before, sources={**before.sources, "S": replace(before.sources["S"], retain=7)})
    loaded = read_job(folder, write_job(folder, job(before)))
    assert reads == ["penstock", "plans", "plans"]
    assert shape(loaded.plan) == shape(before) and list(loaded.plan.sources) == ["S", "T"]
    assert grown.parts is not None and loaded.plan.parts is not None
    added = plan_generations([*generations([], [], [third])])
    number = 1 + max(step.id for step in grown.steps)
    part = replace(
        added.parts[2] if added.parts else added,
        steps=tuple(
            replace(s, id=s.id + number, inputs=tuple(replace(i, step=i.step + number) for i in s.inputs))
            for s in added.steps
        ),
    )
    reads.clear()
    after = joined([grown.parts[1], part])
    again = read_job(folder, write_job(folder, job(after)))
    # One part is new, one stays, and one has gone.
    assert reads == ["penstock", "plans"] and len(list((folder.root / "plans").iterdir())) == 3
    assert shape(again.plan) == shape(after)
    assert again.plan.parts is not None and again.plan.parts[0] is loaded.plan.parts[1]
    forget_parts(folder, job(after))
    assert len(list((folder.root / "plans").iterdir())) == 2
    forget_jobs(folder)
    assert not (folder.root / "plans").exists()


def _calls_of_a_change(tmp: Path, standing: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many functions are called in Python while one query is added to `standing` others."""
    tmp.mkdir()
    write_files(tmp / "data", range(7))
    run = InlineRun(script(tmp, range(standing)), tmp / "checkpoint", live=True).go(1)
    run.change(script(tmp, range(standing + 1)))
    calls: Counter[str] = Counter()
    begin = inline_run.begin_change

    def counted(*arguments: Any) -> Any:
        sys.setprofile(lambda frame, event, argument: calls.update([event]))
        try:
            return begin(*arguments)
        finally:
            sys.setprofile(None)

    with monkeypatch.context() as patched:
        patched.setattr(inline_run, "begin_change", counted)
        run.change(script(tmp, range(standing + 2)))
    return calls["call"]


def test_a_change_does_little_for_each_query_that_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (_calls_of_a_change(tmp_path / str(count), count, monkeypatch) for count in (8, 72))
    assert (many - few) / 64 < MOST_CALLS, (few, many)


#: Texts of queries of which the next one often has a longer window than all before it.
GROWING = {
    "logs": "SELECT k, SUM(x) AS s FROM S [RANGE {n} SECONDS] GROUP BY k",
    "pane stores": "RSTREAM(SELECT k, SUM(x) AS s FROM S [RANGE {n} SECONDS SLIDE 5 SECONDS] GROUP BY k)",
    "window stores": "SELECT a.k, a.x, b.x AS y FROM S [RANGE {n} SECONDS] AS a, S [RANGE 2 SECONDS] AS b"
    " WHERE a.k = b.k AND a.x = b.x",
    "late windows": "SELECT k, x FROM S [RANGE {n} SECONDS] WHERE x <> 5",
}


@pytest.mark.spread(2)
@pytest.mark.parametrize("kind", GROWING)
def test_a_longer_window_changes_no_part_of_the_others(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever store they read from then on; and the answers are those of a process that begins anew each time."""
    parts: list[str] = []
    pickled = job_files.pickled

    def noting(value: Any) -> bytes:
        parts.extend([type(value).__name__] * isinstance(value, Plan))
        return pickled(value)

    monkeypatch.setattr(job_files, "pickled", noting)
    write_files(tmp_path / "data", range(18))

    def text(out: str, numbers: Sequence[int]) -> str:
        made = (
            f"CREATE QUERY q{n} INTO FILES (path '{tmp_path / out / str(n)}', format 'parquet') AS "
            f"{GROWING[kind].format(n=5 * (n + 1))};"
            for n in numbers
        )
        return "SET max_batch_bytes = 1; SET shards = 1;" + STREAM.format(path=tmp_path / "data") + "".join(made)

    written: list[int] = []
    moved = 0
    for out in ("warm", "cold"):
        run = InlineRun(text(out, range(3)), tmp_path / f"of {out}", live=True).go(1)
        for count in range(4, 10):
            parts.clear()
            run.change(text(out, range(count)), backfilled=count % 3 == 0).go(1)
            written.append(len(parts))
            moved += any(key.startswith(MOVED) for key in run.epoch.merges)
            if out == "cold":
                run.rounds.stop()
                cold()
                run = InlineRun(text(out, range(count)), tmp_path / f"of {out}", live=True)
                assert run.decision.kind.value == "same"
        run.run()
        assert run.ended
    # The new part; and the one before it, which reads what the others do when it has been there for long enough.
    assert max(written[:6]) <= 2, written
    assert moved or kind == "late windows"
    for n in range(9):
        one, other = (sorted(pq.read_table(tmp_path / out / str(n)).to_pylist(), key=repr) for out in ("warm", "cold"))
        assert one == other
        assert one


@pytest.mark.spread(2)
@pytest.mark.parametrize("kind", GROWING)
def test_a_change_runs_no_reader_that_stands(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round of a change in which nothing is read costs the new query alone, whatever all of them read in place."""
    write_files(tmp_path / "data", range(2))
    ran: Counter[int] = Counter()
    run_round = StageExecutor.run

    def noting(executor: StageExecutor, *rest: Any) -> Any:
        result = run_round(executor, *rest)
        ran.update(executor._ran)
        return result

    monkeypatch.setattr(StageExecutor, "run", noting)
    declares = STREAM.format(path=tmp_path / "data").replace("'parquet')", "'parquet', watch true)")

    def text(numbers: Sequence[int]) -> str:
        made = (f"CREATE QUERY q{n} INTO RESULTS () AS {GROWING[kind].format(n=5 * (n + 1))};" for n in numbers)
        return "SET shards = 2;" + declares + "".join(made)

    run = InlineRun(text(range(12)), tmp_path / "run", live=True, standing=True, declared=declared(declares)).go(3)
    assert not run.pending()
    ran.clear()
    # Without the shortest one, and with one more that is not the longest.
    run.change(text([*range(1, 12), 3 + 12])).go(1)
    standing = {step.id for step in run.job.plan.steps if step.queries.isdisjoint({"q15"})}
    stores = {number for step in run.job.plan.steps if step.spec.reads for number in read_in_place(step)}
    assert ran and set(ran) & standing <= stores
    ran.clear()
    # And with the longest one, which has read its past: what it reads becomes the store of all.
    run.change(text([*range(1, 12), 3 + 12, 30]), backfilled=True).go(1)
    assert kind == "late windows" or any(key.startswith(MOVED) for key in run.epoch.merges)
    standing = {step.id for step in run.job.plan.steps if "q30" not in step.queries}
    stores = {number for step in run.job.plan.steps if step.spec.reads for number in read_in_place(step)}
    assert ran and set(ran) & standing <= stores
    run.rounds.stop()


def test_a_worker_accepts_no_other_part(folder: Folder) -> None:
    plan = plan_generations(generations(queries(*TEXTS)[:1]))
    digest = write_job(folder, job(plan))
    (path,) = (folder.root / "plans").iterdir()
    path.write_bytes(path.read_bytes() + b"x")
    for _ in range(2):
        with pytest.raises(PenstockError) as caught:
            load_job(str(folder.root), digest)
        assert caught.value.code == "P0605"


def test_a_graft_looks_into_new_parts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    known = queries(*TEXTS)
    grown = plan_generations([Generation(n, [query], Statistics()) for n, query in enumerate(known[:4])])
    assert grown.parts is not None
    executor = StageExecutor(joined(grown.parts[:3]), 1, 0, 1, {})
    kept = dict(executor._operators)
    made: list[str] = []
    monkeypatch.setattr(
        "penstock.physical.execution.step_graph.make_operator",
        lambda spec, *rest: made.append(type(spec).__name__) or object.__new__(Grafted),
    )
    executor.graft(grown, {}, {"S"})
    new = [step for step in grown.parts[3].steps if step.stage == 1]
    assert made == [type(step.spec).__name__ for step in new] and made
    assert {n: executor._operators[n] for n in kept} == kept
    executor.graft(joined(grown.parts[1:]), {}, {"S"})
    gone = {step.id for step in grown.parts[0].steps}
    assert len(made) == len(new) and executor._operators.keys() == (kept.keys() | {s.id for s in new}) - gone


class Grafted:
    """An operator that is never run."""

    def detach(self) -> None:
        """It reads nothing."""

    def attach(self, inputs: object) -> None:
        """It reads nothing."""
