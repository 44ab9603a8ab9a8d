"""Plans that are edited while they run, without Spark: what is set, when the new plan takes over, what is refused."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from control_kit import Server, server

from penstock.control.entities.relations import BY_NAME
from penstock.control.entities.running_plan import running_plan_document
from penstock.errors import PenstockError

STREAMS = "".join(
    f"CREATE STREAM {name} (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND{{retain}};"
    for name in "ABC"
)
KEPT, FORGOTTEN = STREAMS.format(retain=" RETAIN 100 SECONDS"), STREAMS.format(retain="")
PAIRS = """CREATE QUERY q AS SELECT A.v AS a, B.v AS b FROM A [RANGE 6 SECONDS], B [RANGE 6 SECONDS] WHERE A.k = B.k;"""
THREE = """CREATE QUERY q AS SELECT A.v AS a, B.v AS b, C.v AS c
  FROM A [RANGE 6 SECONDS], B [RANGE 6 SECONDS], C [RANGE 6 SECONDS] WHERE A.k = B.k AND B.k = C.k;"""
#: What has one kind of synopsis: joins in one operator, logs of rows.
ONE_KIND = "CREATE QUERY long AS SELECT k, MAX(v) AS m FROM A [RANGE 9 SECONDS] GROUP BY k;"
SUMS = "CREATE QUERY {name} AS SELECT k, SUM(v) AS s FROM A [RANGE 6 SECONDS] GROUP BY k;"


def rows(one: Server, relation: str) -> list[dict[str, Any]]:
    return BY_NAME[f"penstock.{relation}"].table(one.control.view()).to_pylist()


def edit(one: Server, name: str = "q") -> Any:
    return one.control.query(name)[1].beside


def feed(one: Server, ticks: range, names: str = "ABC") -> None:
    """Post rows at some ticks, and run a round for each."""
    for ts in ticks:
        one.done("".join(f"INSERT INTO {name} VALUES ({ts}, {ts % 3}, {ts * 10 + i});" for i, name in enumerate(names)))
        one.engine.round()


def settle(one: Server, ts: int, names: str = "ABC") -> int:
    """Feed until no change of a plan is left; return the next tick."""
    for _ in range(40):
        if all(
            each.query.beside is None and each.query.answer.plan == each.stored.wished_plan
            for each in one.control.queries()
        ):
            return ts
        feed(one, range(ts, ts + 1), names)
        ts += 1
        time.sleep(0.05)
    raise AssertionError("the change does not end")


def content(answers: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in answers)


def unedited(tmp_path: Path, script: str, ticks: range, names: str = "ABC") -> list[tuple[Any, ...]]:
    with server(tmp_path / "unedited") as one:
        one.done(script)
        feed(one, ticks, names)
        return content(one.answers("q"))


def synopsis(one: Server, kind: str) -> dict[str, Any]:
    return next(row for row in rows(one, "synopses") if row["possible"] and row["kind"] == kind)


# -- what takes over -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [KEPT, FORGOTTEN], ids=["kept", "forgotten"])
def test_another_kind_of_synopsis_takes_over_and_no_answer_changes(tmp_path: Path, streams: str) -> None:
    with server(tmp_path) as one:
        one.done(streams + PAIRS)
        feed(one, range(1, 9))
        found = synopsis(one, "HashJoinIndex")
        one.done(f"UPDATE penstock.synopses SET kind = 'runs' WHERE id = '{found['id']}'")
        if streams is FORGOTTEN:
            assert edit(one) is not None and edit(one).until is None
            feed(one, range(9, 12))
            # What has gone counts in the windows still.
            assert edit(one).until is None and synopsis(one, "HashJoinIndex")
        ts = settle(one, 12 if streams is FORGOTTEN else 9)
        feed(one, range(ts, ts + 3))
        assert {row["kind"] for row in rows(one, "synopses") if row["chosen"]} == {"SortedRuns"}
        assert content(one.answers("q")) == unedited(tmp_path, streams + PAIRS, range(1, ts + 3))
        texts = [row["text"] for row in rows(one, "commands")]
        assert "PLAN OF q: TAKES OVER" in texts and "PLAN OF q: FORMER PLAN ENDS" in texts


def test_a_choice_survives_a_restart_a_new_name_and_another_choice_and_is_taken_back(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        one.done(KEPT + THREE)
        feed(one, range(1, 5))
        join = next(row for row in rows(one, "operators") if row["join_order"])
        assert join["chosen"] is None
        one.done(f"UPDATE penstock.operators SET join_order = 'c, b, a' WHERE id = '{join['id']}'")
        ts = settle(one, 5)
    with server(tmp_path) as one:
        one.done("ALTER QUERY q RENAME TO other")
        (join,) = [row for row in rows(one, "operators") if row["join_order"]]
        assert (join["join_order"], join["chosen"]) == ("C, B, A", "join_order")
        one.done(f"UPDATE penstock.operators SET shared = false WHERE id = '{join['id']}'")
        one.done("ALTER QUERY other RENAME TO q")
        ts = settle(one, ts)
        (join,) = [row for row in rows(one, "operators") if row["join_order"]]
        assert (join["join_order"], join["shared"], join["chosen"]) == ("C, B, A", False, "join_order, shared")
        one.done(f"UPDATE penstock.operators SET join_order = NULL, shared = NULL WHERE id = '{join['id']}'")
        ts = settle(one, ts)
        (join,) = [row for row in rows(one, "operators") if row["join_order"]]
        assert join["chosen"] is None and join["shared"]
        assert content(one.answers("q")) == unedited(tmp_path, KEPT + THREE, range(1, ts))


def test_a_shared_step_changes_for_all_its_queries_when_that_is_confirmed(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        one.done(KEPT + SUMS.format(name="p") + SUMS.format(name="q"))
        feed(one, range(1, 4), "A")

        def sums() -> list[dict[str, Any]]:
            return [row for row in rows(one, "operators") if row["kind"] == "Aggregate"]

        (shared,) = sums()
        assert (shared["queries"], shared["shared"], shared["mature"], shared["since_tick"]) == (2, True, True, None)
        update = f"UPDATE penstock.operators SET shared = false WHERE id = '{shared['id']}'"
        with pytest.raises(PenstockError, match=r"P0753.*used by 2 queries"):
            one.run(update)
        one.done(f"{update} CONFIRM 1 ROW")
        assert edit(one, "p") is not None and edit(one, "q") is not None
        ts = settle(one, 4, "A")
        assert [(row["queries"], row["shared"], row["chosen"]) for row in sums()] == [(1, False, "shared")] * 2
        # Each may be given back; the first finds no other, since that is still its query's own.
        one.done("UPDATE penstock.operators SET shared = true WHERE kind = 'Aggregate'")
        ts = settle(one, ts, "A")
        one.done("ALTER QUERY q SET (comment 'merges what can be')")
        assert [row["shared"] for row in sums()] == [True] * len(sums())
        assert content(one.answers("p")) == content(one.answers("q"))
        assert content(one.answers("q")) == unedited(tmp_path, KEPT + SUMS.format(name="q"), range(1, ts), "A")


def test_one_query_has_its_own_step_by_alter(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        one.done(KEPT + SUMS.format(name="p") + SUMS.format(name="q"))
        feed(one, range(1, 4), "A")
        key = next(row["plan_key"] for row in rows(one, "operators") if row["kind"] == "Aggregate")
        one.done(f"""ALTER QUERY q SET (plan '{json.dumps({key: {"shared": False}})}')""")
        settle(one, 4, "A")
        found = {row["plan_key"]: row["queries"] for row in rows(one, "operators") if row["kind"] == "Aggregate"}
        assert found == {key: 1}
        assert one.control.query("p")[0].attributes.get("plan") is None


# -- what happens to a change on its way ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "ALTER QUERY q PAUSE",
        "ALTER QUERY q AS SELECT A.v AS a, A.k AS b FROM A [RANGE 2 SECONDS] START NOW",
        "DROP QUERY q",
    ],
)
def test_a_query_that_begins_anew_or_ends_gives_a_change_up(tmp_path: Path, command: str) -> None:
    with server(tmp_path) as one:
        one.done(FORGOTTEN + PAIRS)
        feed(one, range(1, 9))
        one.done(f"UPDATE penstock.synopses SET kind = 'runs' WHERE id = '{synopsis(one, 'HashJoinIndex')['id']}'")
        assert edit(one) is not None
        one.done(command)
        if "DROP" in command:
            assert rows(one, "operators") == []
            return
        assert edit(one) is None
        if "PAUSE" in command:
            one.done("ALTER QUERY q RESUME START NOW")
            feed(one, range(9, 12))
            # It begins with the plan that it was to have.
            assert edit(one) is None
            assert "SortedRuns" in {row["kind"] for row in rows(one, "synopses") if row["chosen"]}


def test_a_change_that_is_taken_back_or_replaced_before_it_is_through(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        one.done(FORGOTTEN + PAIRS)
        feed(one, range(1, 9))
        found = synopsis(one, "HashJoinIndex")["id"]
        one.done(f"UPDATE penstock.synopses SET kind = 'runs' WHERE id = '{found}'")
        first = edit(one)
        one.done("ALTER QUERY q SET (plan 'none')")
        assert edit(one) is None
        one.done(
            "UPDATE penstock.synopses SET kind = 'runs' WHERE operator LIKE 'operator:%' AND possible LIKE 'Hash%'"
        )
        second = edit(one)
        assert second is not None and second.place != first.place and second.plan.count("SortedRuns") == 2
        ts = settle(one, 9)
        assert content(one.answers("q")) == unedited(tmp_path, FORGOTTEN + PAIRS, range(1, ts))


def test_a_change_goes_on_after_a_restart_and_over_exchanged_queries(tmp_path: Path) -> None:
    other = PAIRS.replace("QUERY q", "QUERY p").replace("RANGE 6", "RANGE 4")
    with server(tmp_path) as one:
        one.done(FORGOTTEN + PAIRS + other)
        feed(one, range(1, 9))
        found = synopsis(one, "HashJoinIndex")["id"]
        one.done(f"UPDATE penstock.synopses SET kind = 'runs' WHERE id = '{found}' CONFIRM 1 ROW")
        kept = [one.control.query(name)[0] for name in "pq"]
        changed = {each.text.count("RANGE 4"): each.wished_plan for each in kept}
        assert set(changed.values()) != {"none"}
    with server(tmp_path) as one:
        feed(one, range(9, 11))
        one.done("ALTER QUERY p SWAP WITH q")
        settle(one, 11)
        # What is chosen of a plan goes where its text goes.
        found = {one.control.query(name)[0].text: one.control.query(name)[1].answer.plan for name in "pq"}
        assert {text.count("RANGE 4"): plan for text, plan in found.items()} == changed
        assert all("SortedRuns" in plan for plan in changed.values() if plan != "none")


# -- plans as data -------------------------------------------------------------------------------------------------


def test_a_plan_as_data_has_its_choices_and_gives_them_to_another_query(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        one.done(KEPT + THREE)
        feed(one, range(1, 5))
        join = next(row for row in rows(one, "operators") if row["join_order"])
        one.done(f"UPDATE penstock.operators SET join_order = 'B, C, A' WHERE id = '{join['id']}'")
        settle(one, 5)
        view = one.control.view()
        (command,) = [out.command for out in one.run("EXPORT PLAN OF q")]
        document = json.loads(running_plan_document(view, command.query, command.logical))
        ((key, chosen),) = document["attributes"].items()
        assert chosen == {"join_order": "B, C, A"}
        assert any(step["attributes"].get(key) == chosen for step in document["physical"])
        text = json.dumps(document).replace("\\", "\\\\").replace("'", "''")
        one.done(f"CREATE QUERY copy FROM PLAN '{text}'")
        feed(one, range(40, 42))
        found = [row["join_order"] for row in rows(one, "operators") if row["join_order"]]
        assert set(found) == {"B, C, A"}
        assert one.control.query("copy")[0].attributes["plan"] == json.dumps(document["attributes"])
        document["attributes"] = {"0123456789abcdef.Join": {"shared": False}}
        text = json.dumps(document).replace("\\", "\\\\").replace("'", "''")
        with pytest.raises(PenstockError, match=r"P0752.*no operator"):
            one.run(f"CREATE QUERY wrong FROM PLAN '{text}'")
    with server(tmp_path) as one:
        assert one.control.apply(one.control.catalog_text(), dry=True) == []


# -- what is refused -----------------------------------------------------------------------------------------------


def test_what_cannot_be_chosen_is_refused_with_what_can(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        one.done(KEPT + THREE + SUMS.format(name="sums") + ONE_KIND)
        feed(one, range(1, 4))

        def refused(script: str, expected: str) -> None:
            with pytest.raises(PenstockError) as caught:
                one.run(script)
            error = caught.value
            assert expected in f"{error.code} {error.message}; {error.hint}", error

        join = next(row["id"] for row in rows(one, "operators") if row["join_order"])
        order = f"UPDATE penstock.operators SET join_order = '{{}}' WHERE id = '{join}'"
        for wrong in ("A, B", "A, B, D", "A, A, B, C"):
            refused(order.format(wrong), "P0752")
        refused(order.format(" "), "this choice is empty")
        refused(order.format("A, B, D"), "an order of all of its inputs A, B, C")
        scan = next(row for row in rows(one, "operators") if row["kind"] == "Scan")["id"]
        refused(
            f"UPDATE penstock.operators SET join_order = 'A' WHERE id = '{scan}' CONFIRM 1 ROW",
            "P0752 operator Scan joins no inputs in an order",
        )
        output = next(row for row in rows(one, "operators") if row["kind"] == "Output")["id"]
        refused(f"UPDATE penstock.operators SET shared = false WHERE id = '{output}'", "answers one query")
        live = next(row for row in rows(one, "synopses") if "CalendarQueue" in (row["possible"] or ""))
        refused(
            f"UPDATE penstock.synopses SET kind = 'hash' WHERE id = '{live['id']}'",
            "CalendarQueue (calendar), ListQueue (list)",
        )
        fixed = {row["operator"]: row for row in rows(one, "synopses") if row["possible"] is None}
        titles = {row["id"]: row["kind"] for row in rows(one, "operators")}
        assert {"MultiJoin", "RowLog"} < {titles[operator] for operator in fixed}
        for row in fixed.values():
            refused(
                f"UPDATE penstock.synopses SET kind = 'list' WHERE id = '{row['id']}' CONFIRM 1 ROW",
                f"is a {row['kind']}, and cannot be another synopsis; chosen can be the sides of joins",
            )
        refused("UPDATE penstock.operators SET spec = 'x'", "P0752")
        refused(
            """ALTER QUERY q SET (plan '{"gone.Join": {"shared": false}}')""", "P0752 the plan of q has no operator"
        )
        refused("""ALTER QUERY q SET (plan '{"gone.Join": {"shared": 7}}')""", "P0104")
        refused("ALTER QUERY q SET (plan '{')", "P0104")
        assert all(edit(one, name) is None for name in ("q", "sums"))


def test_a_plan_that_can_never_take_over_is_refused(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        one.done(FORGOTTEN + "CREATE QUERY old AS SELECT v FROM A;")
        feed(one, range(1, 4), "A")
        one.done("CREATE QUERY q AS SELECT k, COUNT(*) AS n FROM A GROUP BY k;")
        feed(one, range(4, 6), "A")
        live = next(row for row in rows(one, "operators") if row["kind"] == "Aggregate")
        assert (live["mature"], live["since_tick"]) == (False, 3)
        with pytest.raises(PenstockError, match=r"P0703.*cannot change while it runs"):
            one.run(f"UPDATE penstock.operators SET shared = false WHERE id = '{live['id']}'")
        one.done("CREATE RELATION R (k INT) FROM MEMORY (); INSERT INTO R VALUES (1);")
        one.done("CREATE QUERY fixed AS SELECT COUNT(*) AS n FROM R;")
        with pytest.raises(PenstockError, match=r"P0752.*never change"):
            one.run("""ALTER QUERY fixed SET (plan '{"x.Join": {"shared": false}}')""")


# -- the law -------------------------------------------------------------------------------------------------------


def random_edits(folder: Path, seed: int, ticks: int = 20) -> int:
    """Edit what can be edited while rows come; return how many new plans took over."""
    draw = random.Random(seed)
    script = draw.choice((KEPT, FORGOTTEN)) + draw.choice((PAIRS, THREE, SUMS.format(name="q")))
    with server(folder) as one:
        one.done(script)
        for ts in range(1, ticks):
            feed(one, range(ts, ts + 1))
            if draw.random() < 0.4:
                change(one, draw)
        ts = settle(one, ticks)
        found = content(one.answers("q"))
        texts = [row["text"] for row in rows(one, "commands")]
    assert found == unedited(folder, script, range(1, ts)), (seed, texts)
    return sum("TAKES OVER" in text for text in texts)


def change(one: Server, draw: random.Random) -> None:
    kinds = [row for row in rows(one, "synopses") if row["possible"]]
    orders = [row for row in rows(one, "operators") if row["join_order"]]
    which = draw.choice(("kind", "order", "shared", "none"))
    if which == "kind" and kinds:
        row = draw.choice(kinds)
        kind = draw.choice(row["possible"].split(", "))
        one.done(f"UPDATE penstock.synopses SET kind = '{kind}' WHERE id = '{row['id']}'")
    elif which == "order" and orders:
        names = list("ABC")
        draw.shuffle(names)
        one.done(f"UPDATE penstock.operators SET join_order = '{', '.join(names)}' WHERE id = '{orders[0]['id']}'")
    elif which == "shared":
        row = draw.choice([row for row in rows(one, "operators") if row["shared"] is not None])
        one.done(f"UPDATE penstock.operators SET shared = {draw.choice(('true', 'false'))} WHERE id = '{row['id']}'")
    elif which == "none":
        one.done("ALTER QUERY q SET (plan 'none')")


def test_edits_at_random_change_no_answer(tmp_path: Path) -> None:
    assert sum(random_edits(tmp_path / str(seed), seed) for seed in range(2)) > 1


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_edits_at_random_change_no_answer(tmp_path: Path) -> None:
    assert sum(random_edits(tmp_path / str(seed), seed) for seed in range(100, 200)) > 100


def test_a_query_whose_choices_are_taken_back_is_declared_as_before(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        script = KEPT + PAIRS
        one.done(script)
        feed(one, range(1, 3))
        found = synopsis(one, "HashJoinIndex")["id"]
        one.done(f"UPDATE penstock.synopses SET kind = 'runs' WHERE id = '{found}'")
        one.done("ALTER QUERY q SET (plan 'none')")
        settle(one, 3)
        assert one.control.query("q")[0].attributes == {}
        assert one.states(PAIRS.replace("CREATE QUERY", "CREATE OR REPLACE QUERY")) == [""]
        assert one.control.apply(script) == []
