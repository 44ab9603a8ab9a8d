"""Punctuations in random worlds: the local runtime answers as the oracle does, however the input is cut, on any number
of shards and over restarts; and laws of the definition itself."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.algebra.nodes.promised import awaits_closing, without_promises
from penstock.algebra.properties.heartbeats import PlacedHeartbeat, with_heartbeats
from penstock.algebra.properties.punctuations import Punctuation
from penstock.errors import PenstockError
from penstock.language.binder.context import Context
from penstock.language.binder.statements.punctuations import read_punctuation
from penstock.language.plan_form import FORMAT
from penstock.language.plans.document import logical, read_plan
from penstock.language.scripts import BoundScript, bind_script
from penstock.language.text import SourceText
from penstock.physical.synopses.promises.punctuated_index import PunctuatedIndex
from penstock.runtime.local.runtime import LocalJob, run_local
from penstock.session import Session
from penstock.settings import Settings
from penstock.testing.cases import RUNS, CaseRun, case_arrivals, case_inputs, parse_case
from penstock.testing.choices import seeded_choices
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from penstock.testing.promises.punctuations import fulfils, plain_rows
from penstock.testing.random.flavours import FLAVOURS
from penstock.testing.random.worlds import random_case
from tests.random_punctuations import add_punctuations

#: Worlds of each flavour.
CASES = 6


def check(seed: int, text: str) -> int:
    """Compare a world with the oracle; return how many elements were punctuated."""
    case = parse_case(text)
    bound = bind_script(case.script)
    inputs, arrivals = case_inputs(case, bound), case_arrivals(case, bound)
    draw = random.Random(seed)
    drain = draw.random() < 0.5
    run = draw.choice([*RUNS, CaseRun(2, seed=seed), CaseRun(3, seed=seed + 1, reload=True, guesses=seed)])
    result = run.answer(bound.queries, inputs, drain, arrivals)
    count = 0
    for query in bound.queries:
        answer = run_oracle(query, inputs, drain, arrivals=arrivals)
        assert_same(query, result.tables[query.name], answer)
        assert {name: result.late.get(name, 0) for name in answer.late} == dict(answer.late), f"{run}\n{text}"
        for name, reasons in answer.rejected.items():
            assert dict(result.rejected.get(name, {})) == reasons, f"{run}\n{text}"
            count += reasons.get("punctuated", 0)
    return count


@pytest.mark.parametrize("flavour", range(len(FLAVOURS)), ids=lambda number: FLAVOURS[number].name)
def test_the_local_runtime_answers_as_the_oracle(flavour: int, case_count: int | None, case_seed: int | None) -> None:
    for seed in range(case_seed or 0, (case_seed or 0) + (case_count or CASES)):
        choices = seeded_choices(seed)
        case = random_case(choices, FLAVOURS[flavour])
        add_punctuations(case, choices)
        text = case.render()
        try:
            check(seed, text)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n{text}") from None


def script(clauses: str = "") -> BoundScript:
    return bind_script(f"""
        CREATE STREAM S (ts INT, a INT, said STRING) FROM MEMORY () TIMESTAMP BY ts {clauses};
        CREATE QUERY q AS SELECT COUNT(*) AS n, SUM(a) AS s FROM S [RANGE 5 SECONDS];
    """)


def table(rows: list[tuple[int | None, int | None, str | None]]) -> pa.Table:
    ts, a, said = ([row[i] for row in rows] for i in range(3))
    return pa.table({"ts": pa.array(ts, pa.int32()), "a": pa.array(a, pa.int32()), "said": pa.array(said, pa.string())})


_SAID = ("a = 1", "a <= 2", "a > 4 AND ts <= 9", "a IN (1, 3)", "a BETWEEN 2 AND 3", "a IS NULL", "ts < 7", "a = 9")


@pytest.mark.parametrize("seed", range(20))
def test_a_record_and_a_statement_are_one_mechanism(seed: int) -> None:
    """The same punctuations as records of PUNCTUATED BY and as PUNCTUATE lead to the same answers and dead letters."""
    draw = random.Random(seed)
    clauses = draw.choice(["", "ORDER WITHIN 4 SECONDS", "ADVANCE AT MOST 6 SECONDS"])
    (by_record,), (by_statement,) = script(f"{clauses} PUNCTUATED BY said").queries, script(clauses).queries
    source = script().catalog.sources["s"]
    records: list[tuple[int | None, int | None, str | None]] = []
    rows: list[tuple[int | None, int | None, str | None]] = []
    placed: list[PlacedHeartbeat] = []
    for _ in range(25):
        if draw.random() < 0.3:
            text = draw.choice(_SAID)
            records.append((draw.choice((None, 50)), None, text))
            placed.append(PlacedHeartbeat(len(rows), 0, 0, read_punctuation(text, source).as_text()))
        else:
            rows.append((draw.randint(0, 20), draw.choice((None, *range(6))), None))
            records.append(rows[-1])
    inputs, other = {"S": table(records)}, {"S": with_heartbeats(table(rows), placed)}
    answers = [run_oracle(by_record, inputs), run_oracle(by_statement, other)]
    assert answers[0] == answers[1]
    for query, given in ((by_record, inputs), (by_statement, other)):
        for batch_rows in (None, 1, 3):
            result = run_local([query], given, 2, batch_rows=batch_rows)
            assert_same(query, result.tables["q"], answers[0])
            assert result.late == dict(answers[0].late)
            assert dict(result.rejected.get("S", {})) == dict(answers[0].rejected["S"])


@pytest.mark.parametrize("seed", range(20))
def test_a_punctuation_only_takes_rows_away(seed: int) -> None:
    """The answer with punctuations is that without them over the rows that are left, up to the last of these."""
    draw = random.Random(seed)
    (query,) = script("ORDER WITHIN 30 SECONDS").queries
    source = script().catalog.sources["s"]
    rows = table([(draw.randint(0, 20), draw.choice((None, *range(6))), None) for _ in range(20)])
    placed = [(draw.randint(0, 20), read_punctuation(draw.choice(_SAID), source)) for _ in range(4)]
    placed.sort(key=lambda one: one[0])
    given = with_heartbeats(rows, [PlacedHeartbeat(at, 0, 0, one.as_text()) for at, one in placed])
    answer = run_oracle(query, {"S": given})
    keep = [
        not any(at <= number and fulfils(row, one) for at, one in placed) for number, row in enumerate(plain_rows(rows))
    ]
    left = run_oracle(query, {"S": rows.filter(pa.array(keep))})
    assert answer.rejected["S"].get("punctuated", 0) == keep.count(False)
    last = left.final if left.final is not None else -1
    assert [event for event in answer.events if event[0] <= last] == left.events


QUERIES = """
CREATE STREAM S (ts INT, a INT, b STRING, said STRING) FROM MEMORY () TIMESTAMP BY ts {clauses} PUNCTUATED BY said;
CREATE STREAM P (ts INT, a BIGINT, b STRING) FROM MEMORY () TIMESTAMP BY ts;
CREATE QUERY inner_join AS SELECT S.b, P.b AS c FROM S, P WHERE S.a = P.a;
CREATE QUERY on_both AS SELECT S.ts, P.ts AS t FROM S, P WHERE S.a = P.a AND S.b = P.b;
CREATE QUERY in_windows AS SELECT S.b, P.b AS c FROM S [RANGE 9 SECONDS], P [RANGE 6 SECONDS SLIDE 3 SECONDS]
  WHERE S.a = P.a;
CREATE QUERY of_three AS SELECT S.b, T.ts FROM S [RANGE 9 SECONDS SLIDE 4 SECONDS], P, S AS T
  WHERE S.a = P.a AND T.a = P.a;
CREATE QUERY outer_join AS SELECT P.a, S.b FROM P LEFT JOIN S ON S.a = P.a;
CREATE QUERY semi_join AS SELECT a, b FROM P WHERE a IN (SELECT a FROM S);
CREATE QUERY groups AS SELECT a, COUNT(*) AS n FROM S GROUP BY a;
CREATE QUERY final AS SELECT a, COUNT(*) AS n, MAX(b) AS m FROM S GROUP BY a HAVING CLOSED(a);
CREATE QUERY final_of_two AS SELECT a, b, COUNT(*) AS n FROM S GROUP BY a, b HAVING CLOSED(a, b);
CREATE QUERY closed AS SELECT a, b FROM S WHERE CLOSED(a);
CREATE QUERY closed_twice AS SELECT S.a, T.b FROM S, S AS T WHERE S.a = T.a AND CLOSED(S.a);
CREATE QUERY distinct_values AS SELECT DISTINCT a FROM S WHERE b <> 'x';
CREATE QUERY of_union AS SELECT a, COUNT(*) AS n FROM (SELECT a, b FROM S UNION ALL SELECT a, b FROM S WHERE a > 2) AS u
  GROUP BY a HAVING CLOSED(a);
"""
_CLOSE = (
    "a = 1", "a <= 2", "a IN (3, 4)", "a = 2 AND b = 'x'", "b = 'y'", "a BETWEEN 4 AND 5 AND b <= 'x'", "a IS NULL",
    "a >= 4", "a = 5 AND ts <= 9", "a < 2 AND a > 2", "b IS NULL",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_state_that_punctuations_end_changes_no_answer_but_that_of_closed(seed: int) -> None:
    """Runtime and oracle under every cut; and but for CLOSED the answer is that over the rows that are left, in queries
    that know of no punctuations."""
    draw = random.Random(seed)
    clauses = draw.choice(["", "ORDER WITHIN 3 SECONDS"])
    bound = bind_script(QUERIES.format(clauses=clauses))
    values = [None, *range(6)]

    def row(tick: int) -> tuple[int | None, int | None, str | None]:
        return tick + draw.randint(-2, 3), draw.choice(values), draw.choice((None, "x", "y"))

    said: list[str | None] = []
    rows: list[tuple[int | None, int | None, str | None]] = []
    for tick in range(26):
        text = draw.choice(_CLOSE) if draw.random() < 0.25 else None
        rows.append(row(tick // 2) if text is None else (draw.choice((None, 40)), None, None))
        said.append(text)
    own, other = _four(rows, said), _four([row(tick // 2) for tick in range(20)], [None] * 20)
    inputs = {
        "S": own,
        "P": other.drop_columns(["said"]).cast(pa.schema([("ts", "int32"), ("a", "int64"), ("b", "string")])),
    }
    run = draw.choice([*RUNS, CaseRun(2, seed=seed), CaseRun(3, seed=seed + 1, reload=True, guesses=seed)])
    result = run.answer(bound.queries, inputs, False, None)
    plain = {one.name: one for one in bind_script(QUERIES.format(clauses=clauses)).queries}
    for query in bound.queries:
        answer = run_oracle(query, inputs)
        assert_same(query, result.tables[query.name], answer)
        if not awaits_closing(query.root):
            unaware = run_oracle(replace(plain[query.name], root=without_promises(query.root)), inputs)
            assert unaware.events == answer.events


def _four(rows: list[tuple[int | None, int | None, str | None]], said: list[str | None]) -> pa.Table:
    ts, a, b = ([row[i] for row in rows] for i in range(3))
    arrays = pa.array(ts, pa.int32()), pa.array(a, pa.int32()), pa.array(b, pa.string()), pa.array(said, pa.string())
    return pa.table(dict(zip(("ts", "a", "b", "said"), arrays, strict=True)))


def test_plans_as_data_name_punctuations() -> None:
    bound = bind_script(QUERIES.format(clauses=""))
    for query in bound.queries:
        data = logical(query.root)
        context = Context(SourceText(json.dumps({"format": FORMAT, "logical": data})), bound.catalog, Settings())
        assert logical(read_plan(context.source.text, context)) == data, query.name


def test_a_stream_may_be_punctuated_and_late() -> None:
    """A late element is late, whatever it fulfils; and one that is punctuated advances time all the same."""
    (query,) = script("PUNCTUATED BY said").queries
    rows = [(5, 1, None), (None, None, "a = 2"), (3, 2, None), (9, 2, None), (7, 1, None), (9, 1, None)]
    result = run_local([query], {"S": table(rows)})
    assert (result.late, dict(result.rejected["S"])) == ({"S": 2}, {"punctuated": 1})
    assert result.tables["q"].select(["ts", "op", "n"]).to_pylist()[0] == {"ts": 5, "op": "+", "n": 1}
    assert max(result.tables["q"].column("n").to_pylist()) == 2


def test_a_text_that_is_no_punctuation_is_set_apart_and_is_no_element() -> None:
    (query,) = script("PUNCTUATED BY said").queries
    texts = ["a = ", "a <> 1", "b = 1", "a = 'x'", "a = 1 OR a = 2", "", "a = ts"]
    result = run_local([query], {"S": table([(1, 1, None), *((2, 1, text) for text in texts), (3, 1, None)])})
    assert result.unusable == {"S": len(texts)}
    assert result.tables["q"].column("n").to_pylist()[2] == 2


def test_one_statement_of_a_script_punctuates_its_rows() -> None:
    session = Session()
    session.execute("""
        CREATE STREAM S (ts INT, a INT) FROM MEMORY () TIMESTAMP BY ts;
        INSERT INTO S VALUES (1, 1), (2, 2); PUNCTUATE S WHERE a = 1; INSERT INTO S VALUES (3, 1), (4, 2);
        CREATE QUERY q AS SELECT a FROM S;
    """)
    assert session.explain("q", analyze=True).count("rejected 1") == 1


def test_punctuations_of_a_table_are_read_as_they_are_written() -> None:
    source = bind_script(
        "CREATE STREAM S (ts TIMESTAMP, a DECIMAL(10, 2), b STRING, c DOUBLE, d DATE) FROM MEMORY () TIMESTAMP BY ts;"
    ).catalog.sources["s"]
    text = "ts <= TIMESTAMP '2026-01-01 10:00:00' AND a = 1.25 AND b IN ('x''y', '') AND c > 1 AND d BETWEEN DATE '2026-01-01' AND DATE '2026-02-01'"  # noqa: E501
    one = read_punctuation(text, source)
    assert Punctuation.from_text(one.as_text()) == one


def test_a_column_of_a_table_from_python() -> None:
    session = Session()
    rows = table([(1, 1, None), (None, None, "a = 1"), (2, 1, None), (3, 2, None)])
    session.stream("S", rows, "ts", punctuated="said")
    session.execute("CREATE QUERY q AS SELECT a FROM S;")
    assert "rejected 1" in session.explain("q", analyze=True)
    with pytest.raises(PenstockError, match="P0380"):
        session.stream("T", rows, "ts", punctuated="a")


def test_explain_says_what_punctuates() -> None:
    session = Session()
    session.execute("CREATE STREAM S (ts INT, p STRING) FROM MEMORY () TIMESTAMP BY ts PUNCTUATED BY p;")
    session.execute("CREATE QUERY q AS SELECT COUNT(*) AS n FROM S [RANGE 10 SECONDS];")
    assert "punctuations: by p" in " ".join(session.explain("q").split())


def test_too_many_values_of_one_punctuation_are_refused() -> None:
    source = bind_script("CREATE STREAM S (ts INT, a INT, b INT) FROM MEMORY () TIMESTAMP BY ts;").catalog.sources["s"]
    values = ", ".join(map(str, range(400)))
    with pytest.raises(PenstockError, match="160,000 combinations") as refused:
        read_punctuation(f"a IN ({values}) AND b IN ({values})", source)
    assert refused.value.code == "P0381"


@pytest.mark.parametrize("query", ["inner_join", "outer_join", "groups", "distinct_values", "final", "closed"])
def test_what_is_closed_leaves(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held beside the punctuations does not grow with the auctions that have been closed."""
    # Bids leave by a promise of the auctions.
    script = QUERIES.format(clauses="").replace("MEMORY () TIMESTAMP BY ts;", "MEMORY () TIMESTAMP BY ts UNIQUE (a);")
    (chosen,) = (one for one in bind_script(script).queries if one.name == query)
    most, round_ = [0], LocalJob.round

    def measured(job: LocalJob, *given: Any, **named: Any) -> Any:
        done = round_(job, *given, **named)
        synopses = [one for row in job.stages for executor in row for one in executor.synopses().values()]
        most[0] = max(most[0], sum(one.rows for one in synopses if not isinstance(one, PunctuatedIndex)))
        return done

    monkeypatch.setattr(LocalJob, "round", measured)
    rows: list[tuple[int | None, int | None, str | None]] = []
    said: list[str | None] = []
    auctions: list[tuple[int | None, int | None, str | None]] = []
    for tick in range(1, 601):
        # As many records as of bids, so that neither stream is ahead.
        auctions += [(tick, tick, "p"), (tick, None, None), (tick, None, None)]
        rows += [(tick, tick, "y"), (tick, tick, "y"), (None, None, None)]
        said += [None, None, f"a = {tick}"]
    wide = pa.schema([("ts", pa.int32()), ("a", pa.int64()), ("b", pa.string())])
    other = _four(auctions, [None] * len(auctions)).drop_columns(["said"]).cast(wide)
    result = run_local([chosen], {"S": _four(rows, said), "P": other}, 2, batch_rows=60)
    assert result.tables[query].num_rows >= 599
    # In each round at most 60 elements of either stream come; what has left is compacted now and then.
    assert most[0] < 300, "of 600 auctions and 1200 bids"
