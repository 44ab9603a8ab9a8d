"""Heartbeats in random worlds: the local runtime answers as the oracle does, however the input is cut, on any number of
shards and over restarts; and laws of the definition itself."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.algebra.properties.heartbeats import PlacedHeartbeat, heartbeats_of, with_heartbeats
from penstock.language.scripts import BoundScript, bind_script
from penstock.runtime.local.runtime import run_local
from penstock.session import Session
from penstock.testing.cases import RUNS, CaseRun, case_arrivals, case_inputs, parse_case
from penstock.testing.choices import seeded_choices
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from penstock.testing.random.flavours import FLAVOURS
from penstock.testing.random.worlds import random_case
from tests.random_heartbeats import add_heartbeats

#: Worlds of each flavour.
CASES = 6


def worlds(flavour: int, first: int, count: int) -> Iterator[tuple[int, str]]:
    """Yield worlds that have heartbeats, as text."""
    for seed in range(first, first + count):
        choices = seeded_choices(seed)
        case = random_case(choices, FLAVOURS[flavour])
        add_heartbeats(case, choices)
        yield seed, case.render()


def check(seed: int, text: str) -> None:
    case = parse_case(text)
    bound = bind_script(case.script)
    inputs, arrivals = case_inputs(case, bound), case_arrivals(case, bound)
    draw = random.Random(seed)
    drain = draw.random() < 0.5
    run = draw.choice([*RUNS, CaseRun(2, seed=seed), CaseRun(3, seed=seed + 1, reload=True, guesses=seed)])
    result = run.answer(bound.queries, inputs, drain, arrivals)
    for query in bound.queries:
        answer = run_oracle(query, inputs, drain, arrivals=arrivals)
        assert_same(query, result.tables[query.name], answer)
        assert {name: result.late.get(name, 0) for name in answer.late} == dict(answer.late), f"{run}\n{text}"
        for name, reasons in answer.rejected.items():
            assert dict(result.rejected.get(name, {})) == reasons, f"{run}\n{text}"


@pytest.mark.parametrize("flavour", range(len(FLAVOURS)), ids=lambda number: FLAVOURS[number].name)
def test_the_local_runtime_answers_as_the_oracle(flavour: int, case_count: int | None, case_seed: int | None) -> None:
    for seed, text in worlds(flavour, case_seed or 0, case_count or CASES):
        try:
            check(seed, text)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n{text}") from None


def script(clauses: str = "") -> BoundScript:
    return bind_script(f"""
        CREATE STREAM S (ts INT, a INT, h BOOLEAN) FROM MEMORY () TIMESTAMP BY ts {clauses};
        CREATE QUERY q AS SELECT COUNT(*) AS n, SUM(a) AS s FROM S [RANGE 5 SECONDS];
    """)


def table(*rows: tuple[int | None, bool | None]) -> pa.Table:
    ts, h = ([row[i] for row in rows] for i in (0, 1))
    return pa.table({"ts": pa.array(ts, pa.int32()), "a": pa.array(ts, pa.int32()), "h": pa.array(h, pa.bool_())})


@pytest.mark.parametrize("seed", range(20))
def test_a_record_and_a_statement_are_one_mechanism(seed: int) -> None:
    """The same heartbeats as records of HEARTBEAT BY and as ADVANCE lead to the same answers and the same late rows."""
    draw = random.Random(seed)
    records = [(draw.randint(0, 30), draw.random() < 0.3) for _ in range(20)]
    placed: list[PlacedHeartbeat] = []
    rows: list[tuple[int | None, bool | None]] = []
    for tick, is_beat in records:
        if is_beat:
            placed.append(PlacedHeartbeat(len(rows), tick))
        else:
            rows.append((tick, None))
    clauses = draw.choice(["", "ORDER WITHIN 4 SECONDS", "ADVANCE AT MOST 6 SECONDS"])
    (by_record,), (by_statement,) = script(f"{clauses} HEARTBEAT BY h").queries, script(clauses).queries
    inputs = {"S": table(*[(tick, is_beat or None) for tick, is_beat in records])}
    other = {"S": with_heartbeats(table(*rows), placed)}
    answers = [run_oracle(by_record, inputs), run_oracle(by_statement, other)]
    assert answers[0] == answers[1]
    for query, given in ((by_record, inputs), (by_statement, other)):
        for batch_rows in (None, 1, 3):
            result = run_local([query], given, 2, batch_rows=batch_rows)
            assert_same(query, result.tables["q"], answers[0])
            assert result.late == dict(answers[0].late)


@pytest.mark.parametrize("seed", range(20))
def test_a_heartbeat_only_takes_rows_away(seed: int) -> None:
    """The answer with heartbeats is that without them over the rows that are left: they tell sooner, and nothing else.
    Up to its last instant, which a heartbeat may move."""
    draw = random.Random(seed)
    rows = table(*[(draw.randint(0, 30), None) for _ in range(20)])
    placed = [PlacedHeartbeat(at, draw.randint(0, 30)) for at in sorted(draw.randint(0, 20) for _ in range(4))]
    (query,) = script("ORDER WITHIN 30 SECONDS").queries
    answer = run_oracle(query, {"S": with_heartbeats(rows, placed)})
    ticks = rows.column("ts").to_pylist()
    kept = [t for i, t in enumerate(ticks) if all(t > beat.tick for beat in placed if beat.rows <= i)]
    left = run_oracle(query, {"S": table(*[(tick, None) for tick in kept])})
    assert answer.late["S"] == 20 - len(kept)
    last = left.final if left.final is not None else -1
    assert [event for event in answer.events if event[0] <= last] == left.events
    assert answer.final is None or answer.final == max([last, *(beat.tick for beat in placed)])


def test_heartbeats_without_a_timestamp_are_set_apart_and_null_flags_are_elements() -> None:
    (query,) = script("HEARTBEAT BY h").queries
    result = run_local([query], {"S": table((1, None), (None, True), (2, False), (3, True), (3, None))})
    assert (result.unusable, result.late) == ({"S": 1}, {"S": 1})
    assert result.tables["q"].column("n").to_pylist()[-1] == 2


def test_heartbeats_of_a_table_are_those_of_its_schema() -> None:
    placed = [PlacedHeartbeat(0, 5), PlacedHeartbeat(2, -(2**60), 7)]
    made = with_heartbeats(table((1, None), (2, None)), placed)
    assert heartbeats_of(made.schema) == placed
    assert heartbeats_of(with_heartbeats(made, []).schema) == []


def test_explain_says_what_advances_time() -> None:
    session = Session()
    session.execute(
        "CREATE STREAM S (ts INT, h BOOLEAN) FROM MEMORY () TIMESTAMP BY ts"
        " IDLE TIMEOUT 5 SECONDS ADVANCE HEARTBEAT BY h;"
        "INSERT INTO S VALUES (1, NULL), (2, NULL); CREATE QUERY q AS SELECT COUNT(*) AS n FROM S [RANGE 10 SECONDS];"
    )
    plan = " ".join(session.explain("q").split())
    assert "heartbeats: by h" in plan and "when idle: advances" in plan


def test_a_query_of_a_script_is_measured_with_its_heartbeats() -> None:
    """EXPLAIN ANALYZE reads the statements between the rows, one that is too far ahead among them."""
    session = Session()
    session.execute(
        "CREATE STREAM S (ts INT) FROM MEMORY () TIMESTAMP BY ts ADVANCE AT MOST 50 SECONDS;"
        "INSERT INTO S VALUES (1), (2); ADVANCE S TO 20; INSERT INTO S VALUES (20), (21);"
        "ADVANCE S TO 500; ADVANCE S TO 60; INSERT INTO S VALUES (61);"
        "CREATE QUERY q AS SELECT COUNT(*) AS n FROM S [RANGE 10 SECONDS];"
    )
    measured = session.explain("q", analyze=True)
    assert "rows in 5  rows out 4  late 1  rejected 1" in measured
