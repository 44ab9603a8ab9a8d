"""What a later version of the program cannot bind: what else is told of it, and how it is mended."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from control_kit import STREAM, Server, server

from penstock.connectors.sources import SOURCES
from penstock.control.entities.relations import BY_NAME
from penstock.control.entities.system import DoorFacts
from penstock.errors import PenstockError, ScriptErrors
from penstock.expressions.calls import user_functions
from penstock.expressions.user import UserAggregate, UserFunction, load, loads_without_modules
from penstock.server.http.documents import catalog_document
from penstock.server.statements.listed_views import unbound_views
from penstock.server_reports import CatalogView

VIEW = "CREATE VIEW w AS SELECT doubled(v) AS d FROM S;"
QUERY = "CREATE QUERY q AS SELECT d FROM w;"


def doubled(values: pa.Array) -> pa.Array:
    return pc.multiply(values, 2)


def with_function(monkeypatch: pytest.MonkeyPatch) -> None:
    made = user_functions.make(UserFunction, doubled, "INT", "doubled", ["INT"])
    monkeypatch.setitem(user_functions.REGISTERED, made.key, made)


@contextmanager
def without_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str = "") -> Iterator[Server]:
    """Yield a server whose view w and query q cannot be bound. more: what is declared behind them."""
    with_function(monkeypatch)
    with server(tmp_path) as system:
        system.done(STREAM + VIEW + QUERY + more)
        system.done("INSERT INTO S VALUES (1, 10), (2, 20);")
        system.engine.round()
    monkeypatch.delitem(user_functions.REGISTERED, "doubled")
    with server(tmp_path) as system:
        yield system


def refused(system: Server, script: str, match: str) -> ScriptErrors:
    with pytest.raises(ScriptErrors, match=match) as found:
        system.run(script)
    return found.value


def told(system: Server, name: str = "q") -> str:
    return system.control.query(name)[1].message


def test_what_depends_on_what_cannot_be_bound_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with without_function(tmp_path, monkeypatch) as system:
        assert told(system) == "w cannot be bound: unknown function DOUBLED"
        reason = "q cannot be bound: w cannot be bound: unknown function DOUBLED"
        for script in (
            "ALTER QUERY q RESUME;",
            "ALTER QUERY q PAUSE;",
            "ALTER QUERY q SET (weight 2);",
            "DESCRIBE q;",
            "ALTER QUERY q INTO MEMORY ();",
            "ALTER QUERY q SWAP WITH q;",
            "EXPLAIN QUERY q;",
            "EXPORT PLAN OF q;",
        ):
            error = refused(system, script, reason)
            assert "ALTER QUERY q AS SELECT ... or CREATE OR REPLACE QUERY q mends it" in (error.errors[0].hint or "")
        error = refused(system, "CREATE QUERY other AS SELECT d FROM w;", "w cannot be bound: unknown function DOUBLED")
        assert "CREATE OR REPLACE VIEW w mends it" in (error.errors[0].hint or "")
        system.done("DROP QUERY q; DROP VIEW w;")
        refused(system, "CREATE QUERY other AS SELECT d FROM w;", "unknown stream, relation or view w")
        system.done("CREATE VIEW w AS SELECT v AS d FROM S; CREATE QUERY q AS SELECT d FROM w;")
        assert system.status("q") == "RUNNING"


@pytest.mark.parametrize("way", ["ALTER QUERY q AS", "CREATE OR REPLACE QUERY q AS"])
def test_another_query_mends_one_that_cannot_be_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with without_function(tmp_path, monkeypatch) as system:
        place = system.control.query("q")[1].place
        assert system.states(f"{way} SELECT v + 1 AS d FROM S;") == ["RUNNING"]
        assert system.status("q") == "RUNNING" and told(system) == ""
        assert system.control.query("q")[1].place == place
        system.done("INSERT INTO S VALUES (3, 30);")
        system.engine.round()
        assert [row["d"] for row in system.answers("q")][:1] == [20]
    # It is so after a start too, and nothing of the error is left.
    with server(tmp_path) as system:
        assert system.status("q") == "RUNNING" and "q" not in system.control.catalog.unbound
        system.done("INSERT INTO S VALUES (4, 40);")
        system.engine.round()
        answered = [row["d"] for row in system.answers("q")]
        assert answered[0] == 20 and answered[-1] == 31


def test_a_query_with_other_columns_does_not_mend_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with without_function(tmp_path, monkeypatch) as system:
        for text in ("SELECT v AS other FROM S", "SELECT CAST(v AS STRING) AS d FROM S", "SELECT SUM(v) AS d FROM S"):
            with pytest.raises(Exception, match="the result of q has other columns"):
                system.run(f"ALTER QUERY q AS {text};")
        assert system.status("q") == "NEEDS ATTENTION"


def test_a_result_of_unknown_columns_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an earlier program left it, which did not note the columns."""
    from penstock.control.drafting import draft

    monkeypatch.setattr(draft, "columns_text", lambda query: "")
    with without_function(tmp_path, monkeypatch) as system:
        monkeypatch.undo()
        place = system.control.query("q")[1].place
        system.done("ALTER QUERY q AS SELECT v AS other FROM S;")
        assert system.status("q") == "RUNNING" and system.control.query("q")[1].place != place


def test_it_can_be_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with without_function(tmp_path, monkeypatch) as system:
        refused(system, "ALTER QUERY q RENAME TO w;", "w is declared already")
        refused(system, "ALTER QUERY q RENAME TO S;", "S is declared already")
        system.done("ALTER QUERY q RENAME TO `a b`;")
        refused(system, "ALTER QUERY `a b` PAUSE;", "a b cannot be bound: w cannot be bound")
        refused(system, "ALTER QUERY q PAUSE;", "unknown query q")
        system.done("CREATE QUERY q AS SELECT v FROM S;")
    with server(tmp_path) as system:
        assert (system.status("a b"), system.status("q")) == ("NEEDS ATTENTION", "RUNNING")
        refused(system, "ALTER QUERY q RENAME TO `A B`;", "A B is declared already")
        system.done("ALTER QUERY `a b` AS SELECT v AS d FROM S;")
        assert system.status("a b") == "RUNNING"


def test_what_depends_on_a_view_comes_back_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = "CREATE VIEW x AS SELECT d FROM w; CREATE QUERY p AS SELECT d + 1 AS e FROM x;"
    with without_function(tmp_path, monkeypatch, more) as system:
        assert told(system, "p") == "x cannot be bound: w cannot be bound: unknown function DOUBLED"
        system.done("CREATE OR REPLACE VIEW w AS SELECT v * 3 AS d FROM S;")
        assert not system.control.catalog.unbound
        for name in ("q", "p"):
            assert system.status(name) == "NEEDS ATTENTION"
            assert told(system, name) == f"it can be bound again: ALTER QUERY {name} RESUME continues it"
        text = system.control.catalog_text()
        assert text.index("VIEW w") < text.index("VIEW x")
        assert system.control.apply(text) == []
        system.done("ALTER QUERY p RESUME; ALTER QUERY q RESUME;")
        assert (system.status("q"), system.status("p")) == ("RUNNING", "RUNNING")
    with server(tmp_path) as system:
        assert (system.status("q"), system.status("p")) == ("RUNNING", "RUNNING")


def test_a_query_that_a_later_start_can_bind_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with without_function(tmp_path, monkeypatch) as system:
        assert system.status("q") == "NEEDS ATTENTION"
    with_function(monkeypatch)
    for _ in range(2):
        with server(tmp_path) as system:
            assert told(system) == "it can be bound again: ALTER QUERY q RESUME continues it"
            count = len(list(system.control.commands()))
    with server(tmp_path) as system:
        assert len(list(system.control.commands())) == count
        system.done("ALTER QUERY q RESUME;")
        assert system.status("q") == "RUNNING"


def test_a_declaration_of_another_kind_does_not_replace_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with without_function(tmp_path, monkeypatch) as system:
        for script in (
            "CREATE OR REPLACE VIEW q AS SELECT v FROM S;",
            "CREATE VIEW w AS SELECT v FROM S;",
            "CREATE OR REPLACE QUERY w AS SELECT v FROM S;",
            "CREATE OR REPLACE STREAM w (a INT, ts INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;",
        ):
            with pytest.raises(Exception, match="is declared already"):
                system.run(script)
        assert system.status("q") == "NEEDS ATTENTION"


def test_cascade_takes_along_what_cannot_be_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = "CREATE VIEW x AS SELECT d FROM w; CREATE QUERY p AS SELECT d FROM x; CREATE QUERY a AS SELECT v FROM S;"
    with without_function(tmp_path, monkeypatch, more) as system:
        system.done("DROP VIEW x CASCADE;")
        assert {one.name for one in system.control.stored.values()} == {"S", "w", "q", "a"}
        system.done("DROP STREAM S CASCADE;")
        assert not system.control.stored


def test_a_stream_that_cannot_be_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    files = f"CREATE {{}}STREAM F (ts INT, v INT) FROM FILES (path '{tmp_path}/in', format 'csv') TIMESTAMP BY ts;"
    script = "CREATE VIEW w AS SELECT v FROM F; CREATE QUERY q AS SELECT v FROM w; CREATE QUERY r AS SELECT v FROM S;"
    with server(tmp_path / "c") as system:
        system.done(STREAM + files.format("") + script)
    kept = SOURCES.pop("FILES")
    try:
        with server(tmp_path / "c") as system:
            assert (system.status("q"), system.status("r")) == ("NEEDS ATTENTION", "RUNNING")
            assert told(system).startswith("w cannot be bound: F cannot be bound: ")
            for script in (
                "INSERT INTO F VALUES (1, 2);",
                "ALTER STREAM F SET (slack '1 SECOND');",
                "DESCRIBE F;",
                "SELECT v FROM F;",
            ):
                refused(system, script, "F cannot be bound")
            system.done("CREATE OR REPLACE STREAM F (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;")
            system.done("ALTER QUERY q RESUME START NOW;")
            system.done("INSERT INTO F VALUES (1, 7), (2, 8);")
            system.engine.round()
            assert system.answers("q")[0]["v"] == 7
    finally:
        SOURCES["FILES"] = kept


def rows(system: Server, name: str) -> dict[str, dict[str, object]]:
    """Return the rows of a control relation, by name."""
    relation = BY_NAME[f"penstock.{name}"]
    return {
        str(relation.attributes[0].read(row)): {one.name: one.read(row) for one in relation.attributes}
        for row in relation.rows(system.control.view(DoorFacts()))
    }


def test_lists_have_what_cannot_be_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = (
        "CREATE STREAM F (ts INT, v INT) FROM FILES (path '{}', format 'csv') TIMESTAMP BY ts;"
        "CREATE SUMMARY m ON F (v) WITH GRANULARITY 10 SECONDS AND COLLAPSE (4, 4) USING EXACT;"
    ).format(tmp_path / "none")
    with without_function(tmp_path, monkeypatch, more) as system:
        view = rows(system, "views")["w"]
        assert (view["state"], view["error"]) == ("NEEDS ATTENTION", "P0204: unknown function DOUBLED")
        assert (rows(system, "streams")["S"]["state"], rows(system, "streams")["S"]["error"]) == ("DECLARED", None)
        assert (
            system.run("SHOW VIEWS;")[0]
            .command.entries[0][1]
            .endswith("-- NEEDS ATTENTION: P0204 unknown function DOUBLED")
        )
    kept = SOURCES.pop("FILES")
    try:
        with server(tmp_path) as system:
            stream = rows(system, "streams")["F"]
            assert stream["state"] == "NEEDS ATTENTION" and str(stream["error"]).startswith("P02")
            assert stream["connector"] is None and stream["on_error"] is None
            assert rows(system, "summaries")["m"]["state"] == "NEEDS ATTENTION"
            assert [text for name, text in system.run("SHOW STREAMS;")[0].command.entries if "NEEDS" in text]
            unbound = {one.name: one for one in unbound_views(system.control.catalog)}
            assert {name: one.kind for name, one in unbound.items()} == {"F": "STREAM", "w": "VIEW", "m": "SUMMARY"}
            assert catalog_document(CatalogView(unbound=tuple(unbound.values()))).unbound[0].state == "NEEDS ATTENTION"
    finally:
        SOURCES["FILES"] = kept


def test_a_function_that_cannot_be_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "lost_functions.py").write_text("import pyarrow.compute as pc\ndef f(v):\n    return pc.multiply(v, 3)\n")
    monkeypatch.syspath_prepend(str(folder))
    create = "FUNCTION f (INT) RETURNS INT AS 'lost_functions:f';"
    with server(tmp_path / "c") as system:
        system.done(f"{STREAM} CREATE {create} CREATE VIEW w AS SELECT f(v) AS d FROM S;")
    monkeypatch.delitem(sys.modules, "lost_functions")
    (folder / "lost_functions.py").rename(folder / "other_functions.py")
    importlib.invalidate_caches()
    with server(tmp_path / "c") as system:
        assert str(rows(system, "views")["w"]["error"]).startswith("P0204: f cannot be bound: module lost_functions")
        assert rows(system, "functions")["f"]["state"] == "NEEDS ATTENTION"
        refused(system, "CREATE QUERY p AS SELECT f(v) AS d FROM S;", "f cannot be bound: ")
        moved = create.replace("lost_functions", "other_functions")
        with pytest.raises(Exception, match="f is declared already"):
            system.run(f"CREATE {moved}")
        system.done(f"CREATE OR REPLACE {moved} CREATE QUERY q AS SELECT d FROM w;")
        assert system.status("q") == "RUNNING"
        assert {rows(system, "functions")["f"]["state"], rows(system, "views")["w"]["state"]} == {"DECLARED"}


MODULE = """
import pyarrow.compute as pc

def f(v):
    return pc.multiply(v, 3)

class Total:
    def init(self):
        return 0

    def update(self, state, v):
        return state + sum(v.to_pylist())

    def final(self, state):
        return state

    def merge(self, state, other):
        return state + other

    def expire(self, state, v):
        return state - sum(v.to_pylist())
"""
USERS = {
    "function": "SELECT f(v) AS d FROM S",
    "constant": "SELECT v + f(2) AS d FROM S",
    "condition": "SELECT v AS d FROM S WHERE f(v) > 30",
    "aggregate": "SELECT total(v) AS d FROM S [RANGE 2 SECONDS]",
    "groups": "SELECT total(v) AS d FROM S [RANGE UNBOUNDED] GROUP BY v",
    "state of it": "SELECT COUNT(*) AS d FROM S [RANGE UNBOUNDED] GROUP BY f(v)",
    "of a join": "SELECT a.v AS d FROM S [RANGE 1 SECOND] a, S [RANGE 1 SECOND] b WHERE f(a.v) = f(b.v)",
}


@pytest.mark.parametrize("how", ["gone", "broken", "without it"])
@pytest.mark.parametrize("select", USERS.values(), ids=USERS)
def test_a_query_whose_module_is_gone_needs_attention_and_the_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, select: str, how: str
) -> None:
    """It has run, so the state of the engine holds its function."""
    # The folders of modules that were shipped stay on the path, so each case has a name of its own.
    module = f"gone_{tmp_path.name}"
    file = tmp_path / "modules" / f"{module}.py"
    file.parent.mkdir()
    file.write_text(MODULE)
    monkeypatch.syspath_prepend(str(file.parent))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget() -> None:
        sys.modules.pop(module, None)
        importlib.invalidate_caches()

    functions = (
        f"CREATE FUNCTION f (INT) RETURNS INT AS '{module}:f'; "
        f"CREATE AGGREGATE total (INT) RETURNS INT AS '{module}:Total';"
    )
    with server(tmp_path / "c") as system:
        system.done(f"{STREAM} {functions} CREATE QUERY q AS {select}; CREATE QUERY other AS SELECT v FROM S;")
        system.done("INSERT INTO S VALUES (1, 10), (2, 20);")
        system.engine.round()
    forget()
    if how == "gone":
        file.unlink()
    else:
        file.write_text("broken(" if how == "broken" else "nothing = 1")
    for start in range(2):
        with server(tmp_path / "c") as system:
            assert system.status("q") == "NEEDS ATTENTION" and system.status("other") == "RUNNING"
            assert module in told(system)
            system.done(f"INSERT INTO S VALUES ({start + 3}, 30);")
            system.engine.round()
            assert [row["v"] for row in system.answers("other")] == [10, 20, 30][: start + 2]
        forget()
    file.write_text(MODULE)
    forget()
    with server(tmp_path / "c") as system:
        assert "RESUME" in told(system)
        before = len(system.answers("q"))
        system.done("ALTER QUERY q RESUME START NOW RESET; INSERT INTO S VALUES (5, 50), (6, 60);")
        system.engine.round()
        assert system.status("q") == "RUNNING" and len(system.answers("q")) > before
    forget()


def test_a_state_of_an_aggregate_without_its_module_is_read_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gone_aggregates.py"
    file.write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()
    total = UserAggregate("total", pa.int32(), load("gone_aggregates:Total")(), None, False, None)
    plain = UserFunction("f", pa.int32(), load("gone_aggregates:f"), None, False, None)
    content, tokens = pickle.dumps((total, plain)), [repr(total), repr(plain)]
    file.unlink()
    sys.modules.pop("gone_aggregates")
    importlib.invalidate_caches()
    with pytest.raises(PenstockError, match="gone_aggregates"):
        pickle.loads(content)
    for _ in range(2):
        found = loads_without_modules(content)
        assert [repr(one) for one in found] == tokens
        assert (found[0].merges, found[0].expires) == (True, True)
        with pytest.raises(PenstockError, match="module gone_aggregates cannot be imported"):
            found[1](pa.array([1]))
        with pytest.raises(PenstockError, match="module gone_aggregates cannot be imported"):
            found[0].body.init()
        content = pickle.dumps(found)
    file.write_text(MODULE)
    importlib.invalidate_caches()
    back = pickle.loads(content)
    assert back[1](pa.array([2])).to_pylist() == [6] and back[0].body.final(3) == 3
    sys.modules.pop("gone_aggregates")
