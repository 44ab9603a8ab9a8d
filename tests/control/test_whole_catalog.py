"""A script as the whole catalog: only the difference happens, in the right order, all of it or nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from control_kit import Server, server

from penstock.control.outcomes import CommandState
from penstock.errors import PenstockError, ScriptErrors
from penstock.language.scripts.parse import parse_script
from penstock.language.statements import SubscribeStatement

BASE = """CREATE STREAM S (ts INT, v INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;
CREATE RELATION R (k INT, name STRING) FROM MEMORY ();
CREATE VIEW big AS SELECT v, k FROM S [RANGE 5 SECONDS] WHERE v > 3;
CREATE VIEW bigger AS SELECT v FROM big WHERE v > 9;
CREATE QUERY q AS SELECT SUM(v) AS s FROM big;
CREATE QUERY p WITH (comment 'a') AS SELECT v FROM bigger;
"""


def applied(system: Server, script: str, **options: Any) -> list[str]:
    """Apply a script; return the statements of the difference."""
    outcomes = system.control.apply(script, **options)
    for one in outcomes:
        assert one.outcome is None or one.outcome.state is not CommandState.FAILED, one
    return [one.text for one in outcomes]


def ids(system: Server) -> dict[str, int]:
    return {one.name: one.id for one in system.control.stored.values()}


def computations(system: Server) -> dict[str, int]:
    return {one.name: one.query.answer.id for one in system.control.stored.values() if one.query is not None}


def test_from_nothing_and_again_nothing(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        assert len(applied(system, BASE)) == 6
        before, number = system.control.stored, len(system.control.commands())
        assert applied(system, BASE) == []
        assert applied(system, BASE.replace("CREATE ", "create  OR REPLACE ").replace(";", " ;\n-- so\n")) == []
        assert system.control.stored == before and len(system.control.commands()) == number


def test_all_goes(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        applied(system, BASE)
        assert applied(system, "") == [
            "DROP QUERY `q`",
            "DROP QUERY `p`",
            "DROP VIEW `bigger`",
            "DROP VIEW `big`",
            "DROP STREAM `S`",
            "DROP RELATION `R`",
        ]
        assert system.control.stored == {}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("'a'", "'b'", ["ALTER QUERY `p` SET (`comment` 'b')"]),
        ("WITH (comment 'a') ", "", ["CREATE OR REPLACE QUERY `p`"]),
        ("RETAIN 1000 SECONDS", "RETAIN 2000 SECONDS", ["ALTER STREAM `S` SET (`retain` '2000 SECOND')"]),
        ("RETAIN 1000 SECONDS", "", ["ALTER STREAM `S` SET (`retain` 'none')"]),
        ("RETAIN 1000 SECONDS;", "; ALTER STREAM S SET (retain '5 seconds');",
         ["ALTER STREAM `S` SET (`retain` '5 SECOND')"]),
        ("SUM(v) AS s", "SUM(k) AS s", ["CREATE OR REPLACE QUERY `q` START WARM AS SELECT SUM(k)"]),
        ("SUM(v) AS s", "MAX(v) AS t", ["DROP QUERY `q`", "CREATE QUERY q AS SELECT MAX(v) AS t"]),
        ("WHERE v > 3", "WHERE v > 4",
         ["CREATE OR REPLACE VIEW big", "CREATE OR REPLACE VIEW bigger", "CREATE OR REPLACE QUERY `q`",
          "CREATE OR REPLACE QUERY `p`"]),
        ("CREATE QUERY q", "CREATE QUERY other", ["DROP QUERY `q`", "CREATE QUERY other"]),
        ("CREATE RELATION R (k INT", "CREATE RELATION R (k BIGINT", ["CREATE OR REPLACE RELATION R (k BIGINT"]),
        ("CREATE RELATION R (k INT, name STRING) FROM MEMORY ()", "CREATE VIEW R AS SELECT k FROM S [NOW]",
         ["DROP RELATION `R`", "CREATE VIEW R"]),
        ("CREATE VIEW big AS SELECT v, k FROM", "CREATE VIEW big (v, kk) AS SELECT v, k FROM",
         ["CREATE OR REPLACE VIEW big", "CREATE OR REPLACE VIEW bigger"]),
    ],
)  # fmt: skip
def test_each_kind_of_difference(before: str, after: str, words: list[str], tmp_path: Path) -> None:
    assert before in BASE
    script = BASE.replace(before, after, 1)
    with server(tmp_path) as system:
        applied(system, BASE)
        stored, kept = system.control.stored, ids(system)
        shown = applied(system, script, dry=True)
        assert system.control.stored == stored, "a dry run changes nothing"
        assert len(shown) == len(words) and all(
            one.startswith(start) for one, start in zip(shown, words, strict=True)
        ), shown
        assert applied(system, script) == shown
        assert applied(system, script) == []
        touched = " ".join(shown)
        for name, number in ids(system).items():
            if name in kept and f"`{name}`" not in touched and f" {name} " not in touched:
                assert number == kept[name], f"{name} has not been touched"
        found = declared(system)
    with server(tmp_path) as system:
        assert declared(system) == found, "a restart reads the same"
        assert applied(system, script) == []
        assert all(query.code == "" for _, query in queries(system))


def queries(system: Server) -> list[Any]:
    return [(one, one.query) for one in system.control.stored.values() if one.query is not None]


def declared(system: Server) -> dict[str, object]:
    bound = system.control.catalog
    return {
        **{key: (one, one.retain) for key, one in bound.sources.items()},
        **{key: (one.root.fingerprint, one.names) for key, one in bound.views.items()},
        **{key: (one.root.fingerprint, one.sink) for key, one in bound.queries.items()},
    }


def test_answers_go_on_where_nothing_differs(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        applied(system, BASE)
        before = computations(system)
        system.done("INSERT INTO S VALUES (1, 10, 1), (2, 5, 1), (9, 20, 2);")
        applied(
            system, BASE.replace("CREATE VIEW bigger AS SELECT v FROM big", "CREATE VIEW bigger AS SELECT v FROM big b")
        )
        assert computations(system) == before, "the same in other words"
        applied(system, BASE.replace("v > 9", "v > 8"))
        after = computations(system)
        assert after["q"] == before["q"] and after["p"] != before["p"]


def test_a_query_is_kept_in_other_words_where_its_view_has_other_names(tmp_path: Path) -> None:
    """The text that is kept has to be one that the next start can bind."""
    old = "CREATE VIEW n AS SELECT v AS a FROM S [NOW];CREATE QUERY rr AS SELECT a AS x FROM n;"
    new = "CREATE VIEW m AS SELECT v AS a FROM S [NOW];CREATE QUERY rr AS SELECT a AS x FROM m;"
    with server(tmp_path) as system:
        applied(system, BASE + old)
        before = computations(system)
        assert [one.split("`")[0].split(" n")[0] for one in applied(system, BASE + new)][-1].startswith("DROP VIEW")
        assert computations(system) == before
    with server(tmp_path) as system:
        assert system.status("rr") == "RUNNING" and applied(system, BASE + new) == []


def test_pauses_stay(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        applied(system, BASE)
        system.done("ALTER QUERY q PAUSE")
        assert applied(system, BASE) == [] and system.status("q") == "PAUSED"


@pytest.mark.parametrize(
    ("script", "code", "place"),
    [
        (BASE + "CREATE QUERY x AS SELECT w FROM big;", "P0202", (7, 26)),
        (BASE + "CREATE QUERY x AS SELECT w FROM big;\nCREATE QUERY y AS SELECT z FROM big", "P0202", (7, 26)),
        (BASE + "INSERT INTO S VALUES (1, 2, 3);", "P0732", (7, 1)),
        (BASE + "\nDROP QUERY q", "P0732", (8, 1)),
        (BASE + "CREATE VIEW IF NOT EXISTS x AS SELECT v FROM big", "P0732", (7, 1)),
        (BASE + "CREATE VIEW big AS SELECT v FROM S [NOW]", "P0206", (7, 13)),
        (BASE.replace("CREATE VIEW big", "CREATE VIEW later"), "P0201", None),
        ("CREATE VIEW (", "P0101", (1, 13)),
        ("BEGIN; " + BASE + " COMMIT", "P0732", None),
    ],
)
def test_all_is_refused_where_a_part_is(script: str, code: str, place: tuple[int, int] | None, tmp_path: Path) -> None:
    with server(tmp_path) as system:
        applied(system, BASE)
        before = system.control.stored
        changed = script.replace("SUM(v)", "MAX(v)")
        for dry in (True, False):
            with pytest.raises((ScriptErrors, PenstockError)) as caught:
                system.control.apply(changed, dry=dry)
            error = caught.value.errors[0] if isinstance(caught.value, ScriptErrors) else caught.value
            assert error.code == code, error
            found = error.position
            assert place is None or (found is not None and (found.line, found.column) == place), found
        assert system.control.stored == before


def test_all_errors_are_told_once(tmp_path: Path) -> None:
    wrong = BASE.replace("v > 3", "w > 3") + "CREATE QUERY x AS SELECT z FROM S [NOW];"
    with server(tmp_path) as system, pytest.raises(ScriptErrors) as caught:
        system.control.apply(wrong)
    assert [one.position.line for one in caught.value.errors if one.position] == [3, 7]


def test_names_of_any_text(tmp_path: Path) -> None:
    script = (
        "CREATE STREAM `a b;'\"--` (`t s` INT, `v``\\` INT) FROM MEMORY () TIMESTAMP BY `t s`;\n"
        "CREATE VIEW `select` AS SELECT `v``\\` FROM `a b;'\"--` [NOW];\n"
        "CREATE QUERY `日本 </script>` WITH (comment 'it''s \\\\ ;') AS SELECT `v``\\` AS `x y` FROM `select`;\n"
    )
    with server(tmp_path) as system:
        applied(system, script)
        assert applied(system, script) == []
        applied(system, script.replace("it''s", "that''s"))
        (query,) = (one for one in system.control.stored.values() if one.query is not None)
        assert query.attributes["comment"] == "that's \\ ;"
        shown = applied(system, script.replace("[NOW]", "[RANGE 3 SECONDS]"), dry=True)
        parse_script(";\n".join(shown))
        dropped = applied(system, "")
        assert len(dropped) == 3 and system.control.stored == {}


def test_settings_hold_behind_them(tmp_path: Path) -> None:
    script = BASE + "SET integer_division = 'true'; CREATE QUERY h AS SELECT v / 2 AS half FROM big;"
    with server(tmp_path) as system:
        applied(system, script)
        assert applied(system, script) == []
        (shown,) = applied(system, script.replace("SET integer_division = 'true';", ""), dry=True)[-1:]
        assert shown.startswith(("CREATE", "DROP"))


def test_a_key_makes_it_once(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        first = applied(system, BASE, key="k")
        assert applied(system, BASE, key="k") == first
        with pytest.raises(PenstockError) as caught:
            applied(system, "", key="k")
        assert caught.value.code == "P0731" and len(system.control.stored) == 6
        with pytest.raises(PenstockError):
            system.run(BASE, key="k")


def test_what_a_subscription_reads_stays(tmp_path: Path) -> None:
    from penstock.server.statements.temporary_queries import TemporaryQueries

    with server(tmp_path) as system:
        applied(system, BASE)
        script = parse_script("SUBSCRIBE TO (SELECT v FROM big)")
        (statement,) = script.statements
        assert isinstance(statement, SubscribeStatement) and statement.query is not None
        name = TemporaryQueries(system.control).begin(script, statement.query, {}, _system(), 10)
        assert applied(system, BASE) == []
        applied(system, BASE.replace("CREATE QUERY p WITH (comment 'a') AS SELECT v FROM bigger;", ""))
        assert name in ids(system)
        with pytest.raises(ScriptErrors, match="P0222"):
            system.control.apply("")
        assert name in ids(system) and "q" in ids(system)


def test_a_subscription_that_ends_is_gone_for_what_comes_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.server.statements.temporary_queries import TemporaryQueries

    drop = TemporaryQueries._drop

    def late(queries: TemporaryQueries, name: str) -> None:
        time.sleep(0.2)
        drop(queries, name)

    monkeypatch.setattr(TemporaryQueries, "_drop", late)
    with server(tmp_path) as system:
        applied(system, BASE)
        script = parse_script("SUBSCRIBE TO (SELECT v FROM big)")
        (statement,) = script.statements
        assert isinstance(statement, SubscribeStatement) and statement.query is not None
        queries = TemporaryQueries(system.control)
        name = queries.begin(script, statement.query, {}, _system(), 10)
        queries.end(name)
        queries.wait()
        system.control.apply("")
        assert not ids(system) and not queries._ending


def _system() -> Any:
    from penstock.control.outcomes import SYSTEM

    return SYSTEM


def test_two_hundred_queries(tmp_path: Path) -> None:
    script = BASE + "".join(f"CREATE QUERY x{i} AS SELECT v FROM big WHERE v > {i};\n" for i in range(200))
    with server(tmp_path) as system:
        assert len(applied(system, script)) == 206
        assert applied(system, script) == []
        assert len(applied(system, script.replace("v > 77;", "v > 777;"))) == 1


MODULE = """
def double(x: int) -> int:
    return 2 * x
def triple(x: int) -> int:
    return 3 * x
"""


def test_a_function_that_changes_changes_what_calls_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whole_catalog_functions.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    script = (
        "CREATE FUNCTION f (INT) RETURNS INT AS 'whole_catalog_functions:double';"
        + BASE
        + "CREATE QUERY h AS SELECT f(v) AS w FROM big;"
    )
    with server(tmp_path / "all") as system:
        applied(system, script)
        before = computations(system)
        assert applied(system, script) == []
        shown = applied(system, script.replace(":double", ":triple"))
        assert [one.split(" AS ")[0] for one in shown] == [
            "CREATE OR REPLACE FUNCTION f (INT) RETURNS INT",
            "CREATE OR REPLACE QUERY `h` START WARM",
        ]
        assert computations(system)["h"] != before["h"] and computations(system)["q"] == before["q"]
        with pytest.raises(ScriptErrors):
            system.control.apply(script.split(";", 1)[1])
        assert applied(system, BASE) == ["DROP QUERY `h`", "DROP FUNCTION `f`"]
    with server(tmp_path / "all") as system:
        assert applied(system, BASE) == []


def test_sinks_are_compared(tmp_path: Path) -> None:
    first = BASE + "CREATE QUERY o INTO RESULTS (retain '20 minutes') AS SELECT v FROM big;"
    with server(tmp_path / "all") as system:
        applied(system, first)
        text = system.control.catalog_text()
        assert "CREATE QUERY `o` INTO RESULTS (`retain` '20" in text
        assert applied(system, text) == [] and applied(system, first) == []
        second = first.replace("20 minutes", "30 minutes")
        (moved,) = applied(system, second)
        assert moved.startswith("CREATE OR REPLACE QUERY `o` INTO RESULTS (retain '30 minutes') START WARM AS")
        with pytest.raises(ScriptErrors) as caught:
            system.control.apply(second.replace("AS SELECT v FROM big;", "AS SELECT v, k FROM big;"))
        (error,) = caught.value.errors
        assert error.code == "P0305" and error.position is not None and error.position.line == 7


def test_a_source_that_is_read_is_replaced_with_all_over_it(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        applied(system, BASE)
        before = ids(system)
        shown = applied(system, BASE.replace(" RETAIN 1000", " ORDER WITHIN 2 SECONDS RETAIN 1000"))
        assert [one.split(" AS ")[0].split(" (")[0] for one in shown] == [
            "CREATE OR REPLACE STREAM S",
            "CREATE OR REPLACE VIEW big",
            "CREATE OR REPLACE VIEW bigger",
            "CREATE OR REPLACE QUERY `q` START WARM",
            "CREATE OR REPLACE QUERY `p` START WARM WITH",
        ]
        assert ids(system)["q"] == before["q"] and ids(system)["S"] != before["S"]
        system.done("INSERT INTO S VALUES (1, 10, 1), (2, 20, 1), (30, 5, 1)")
        system.engine.round()
        assert system.answers("q")
        with pytest.raises(ScriptErrors) as caught:
            system.control.apply(
                BASE.replace("RETAIN 1000 SECONDS", "ORDER WITHIN 2 SECONDS RETAIN 1000 SECONDS (v, ts)")
            )
        assert caught.value.errors[0].code == "P0222"
    with server(tmp_path) as system:
        assert all(query.code == "" for _, query in queries(system))


def test_transactions_from_several_sides(tmp_path: Path) -> None:
    """Whatever the order is, each script is applied against what is there then."""
    from concurrent.futures import ThreadPoolExecutor

    scripts = [BASE + f"CREATE QUERY x AS SELECT v FROM big WHERE v > {i};" for i in range(6)]
    with server(tmp_path) as system:
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda script: [system.control.apply(script) for _ in range(3)], scripts))
        assert len(found) == 6
        states = [one.outcome for each in found for done in each for one in done]
        assert all(one is not None and one.state is not CommandState.FAILED for one in states), states
        (last,) = [script for script in scripts if applied(system, script, dry=True) == []]
        assert applied(system, last) == []


def test_other_promises_are_a_difference(tmp_path: Path) -> None:
    lone = "CREATE STREAM T (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND"
    with server(tmp_path) as system:
        applied(system, f"{BASE}{lone}")
        promised = f"{BASE}{lone} CLUSTERED BY (k)"
        added = "ALTER STREAM T ADD CONSTRAINT k_clustered CLUSTERED BY (k) WITHIN 0 ROWS ASSERTED"
        assert applied(system, promised) == [added]
        assert applied(system, promised) == []
        with pytest.raises(ScriptErrors, match="S is used by big, so it cannot retain other columns"):
            system.control.apply(promised.replace("RETAIN 1000 SECONDS", "RETAIN 1000 SECONDS (v)"))
    with server(tmp_path) as system:
        (promise,) = system.control.catalog.sources["t"].promises
        assert promise.name == "k_clustered"
