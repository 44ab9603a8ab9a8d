"""What statements of a live system mean: each is bound alone to a command, and changes nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest
from live_scripts import standing_catalog

from penstock.algebra import OnError
from penstock.algebra.nodes.query import SinkSpec, Start, StartMode
from penstock.errors import CODES, PenstockError, ScriptErrors
from penstock.expressions.calls.text import to_sql
from penstock.language.binder.statements.attributes import QUERY_ATTRIBUTES, SOURCE_ATTRIBUTES
from penstock.language.commands import (
    AlterQuery,
    AlterSource,
    AlterSystem,
    BeginTransaction,
    Cancel,
    ChangeSetting,
    Command,
    CommitTransaction,
    CreateFunctionCommand,
    CreateQueryCommand,
    CreateSourceCommand,
    CreateViewCommand,
    DeleteRows,
    Describe,
    DropCommand,
    Dropped,
    ExplainCommand,
    ExplainKind,
    InsertRows,
    MoveInto,
    Pause,
    RenameTo,
    ReplaceQuery,
    Resume,
    RollbackTransaction,
    SelectOnce,
    SetAttributes,
    ShowCommand,
    Subscribe,
    SwapWith,
    Unchanged,
    UpdateRows,
    applied,
)
from penstock.language.scripts import Catalog, bind_command, bind_script, parse_script
from penstock.settings import Settings

C = TypeVar("C")


@pytest.fixture(scope="module")
def standing() -> Catalog:
    return standing_catalog()


def _bound(text: str, catalog: Catalog) -> Command:
    script = parse_script(text)
    (statement,) = script.statements
    before = repr(catalog)
    command, _ = bind_command(statement, catalog, Settings(), script.source)
    assert repr(catalog) == before
    return command


def _as(kind: type[C], text: str, catalog: Catalog) -> C:
    command = _bound(text, catalog)
    assert isinstance(command, kind), command
    return command


def _errors(text: str, catalog: Catalog) -> Sequence[PenstockError]:
    with pytest.raises(ScriptErrors) as raised:
        _bound(text, catalog)
    assert all(error.position is not None for error in raised.value.errors)
    return raised.value.errors


# --- declarations


def test_what_stands_is_registered(standing: Catalog) -> None:
    assert set(standing.queries) == {"q", "p", "e"}
    registered = standing.registered["q"]
    assert (registered.start, dict(registered.attributes), registered.id) == (Start(StartMode.WARM), {"weight": "2"}, 9)
    assert standing.sources["s"].retain == 3_600_000_000


def test_sources_and_views(standing: Catalog) -> None:
    created = _as(
        CreateSourceCommand, "CREATE STREAM z (a INT, b INT) FROM HTTP () TIMESTAMP BY a RETAIN 2 MINUTES (b)", standing
    )
    assert (created.source.connector, created.source.retain, created.source.retain_columns) == ("HTTP", 120, (1,))
    view = _as(CreateViewCommand, "CREATE OR REPLACE VIEW z AS SELECT a FROM s", standing)
    assert (view.view.name, view.reads, view.replace) == ("z", frozenset({"s"}), True)


@pytest.mark.parametrize(
    ("clause", "start"),
    [
        ("", Start()),
        ("START NOW", Start()),
        ("START WARM", Start(StartMode.WARM)),
        ("START WARM WAIT", Start(StartMode.WARM, wait=True)),
        ("START BEGINNING", Start(StartMode.BEGINNING)),
        ("START AT '1970-01-01 00:00:02'", Start(StartMode.AT, 2_000_000)),
    ],
)
def test_where_a_query_starts(clause: str, start: Start, standing: Catalog) -> None:
    assert _as(CreateQueryCommand, f"CREATE QUERY z {clause} AS SELECT a FROM s", standing).start == start


def test_a_start_in_ticks(standing: Catalog) -> None:
    text = "CREATE QUERY z START AT {} AS SELECT a FROM n"
    assert _as(CreateQueryCommand, text.format(7), standing).start == Start(StartMode.AT, 7)
    assert [e.code for e in _errors(text.format("'2024-01-01'"), standing)] == ["P0102"]
    assert [e.code for e in _errors("CREATE QUERY z START AT 7 AS SELECT a FROM s", standing)] == ["P0102"]


def test_a_query_with_everything(standing: Catalog) -> None:
    text = (
        "CREATE QUERY z WITH (Weight 0.5, on_failure 'STOP SERVER', sink_retry '5 seconds', comment 'x') START NOW"
        " INTO CONSOLE () AS SELECT a FROM v"
    )
    command = _as(CreateQueryCommand, text, standing)
    assert command.attributes == {
        "weight": "0.5",
        "on_failure": "stop server",
        "sink_retry": "5 seconds",
        "comment": "x",
    }
    assert (command.query.name, command.query.sink, command.into) == ("z", SinkSpec("CONSOLE"), True)
    assert (command.text, command.reads) == (text, frozenset({"v"}))
    assert not _as(CreateQueryCommand, "CREATE QUERY z AS SELECT a FROM v", standing).into


def test_if_not_exists(standing: Catalog) -> None:
    assert _as(Unchanged, "CREATE STREAM IF NOT EXISTS S (x INT) FROM NOWHERE ()", standing).kind == "STREAM"
    assert _as(Unchanged, "CREATE VIEW IF NOT EXISTS v AS SELECT nope FROM nowhere", standing).name == "v"
    assert _as(Unchanged, "CREATE QUERY IF NOT EXISTS q AS SELECT a FROM s", standing).kind == "QUERY"
    assert _as(CreateQueryCommand, "CREATE QUERY IF NOT EXISTS z AS SELECT a FROM s", standing).if_not_exists
    assert [e.code for e in _errors("CREATE VIEW IF NOT EXISTS q AS SELECT a FROM s", standing)] == ["P0206"]


def test_or_replace(standing: Catalog) -> None:
    same = "CREATE OR REPLACE QUERY q INTO CONSOLE () START NOW WITH (weight 2) AS SELECT a FROM v"
    assert isinstance(_bound(same, standing), Unchanged)
    assert _as(CreateQueryCommand, same.replace("weight 2", "weight 3"), standing).replace
    assert _as(CreateQueryCommand, same.replace("a FROM v", "a + 1 AS a FROM v"), standing).replace
    assert isinstance(_bound("CREATE OR REPLACE VIEW v AS SELECT a FROM s [RANGE 1 MINUTE]", standing), Unchanged)
    used = _errors("CREATE OR REPLACE VIEW v AS SELECT a FROM s [RANGE 2 MINUTES]", standing)
    assert [e.message for e in used] == ["v is used by w, q"]
    circle = _errors("CREATE OR REPLACE VIEW v AS SELECT a FROM v", standing)
    assert [e.code for e in circle] == ["P0306"]
    assert [e.code for e in _errors("CREATE OR REPLACE STREAM v (a INT) FROM MEMORY () TIMESTAMP BY a", standing)] == [
        "P0206"
    ]
    source = "CREATE OR REPLACE STREAM n (a INT, tick {}) FROM MEMORY () TIMESTAMP BY tick"
    assert isinstance(_bound(source.format("INT"), standing), Unchanged)
    assert [e.code for e in _errors(source.format("BIGINT"), standing)] == ["P0222"]
    # How long elements are retained is no part of what the source is, and still a change.
    assert [e.code for e in _errors(source.format("INT") + " RETAIN 1 HOUR", standing)] == ["P0222"]


def test_functions(standing: Catalog) -> None:
    text = "CREATE {} f RETURNS BIGINT AS 'penstock.testing.samples:{}'"
    body = "twice"
    command = _as(CreateFunctionCommand, text.format("FUNCTION", body), standing)
    catalog = applied(command, standing)
    assert isinstance(_bound(text.format("FUNCTION IF NOT EXISTS", body), catalog), Unchanged)
    assert isinstance(_bound(text.format("OR REPLACE FUNCTION", body).replace(" f ", " f "), catalog), Unchanged)
    assert [e.code for e in _errors(text.format("FUNCTION", body), catalog)] == ["P0206"]
    assert _as(DropCommand, "DROP FUNCTION f", catalog).drops == (Dropped("FUNCTION", "f"),)
    assert "f" not in applied(_bound("DROP FUNCTION f", catalog), catalog).functions


def test_a_standing_query_reads_views_and_no_queries(standing: Catalog) -> None:
    for start in ("CREATE QUERY z AS ", "CREATE VIEW z AS ", "ALTER QUERY p AS ", "EXPLAIN START "):
        text = start + "SELECT a FROM q"
        (error,) = _errors(text, standing)
        assert (error.code, error.message) == (
            "P0201",
            "q is a query, and continuous queries read streams, relations and views",
        )
    assert _as(SelectOnce, "SELECT a FROM q", standing).query.output_names == ("a",)


def test_a_query_that_reads_itself(standing: Catalog) -> None:
    assert [e.code for e in _errors("CREATE QUERY z AS SELECT a FROM z", standing)] == ["P0306"]


def test_a_local_view_hides_a_declared_name(standing: Catalog) -> None:
    text = "CREATE OR REPLACE QUERY e AS WITH e AS (SELECT a FROM n), v AS (SELECT a FROM e) SELECT a FROM v"
    assert _as(CreateQueryCommand, text, standing).reads == frozenset({"n"})
    text = "CREATE VIEW z AS WITH s AS (SELECT a FROM s) SELECT s.a FROM s, fixed"
    reads = _as(CreateViewCommand, text, standing).reads
    assert reads == frozenset({"s", "fixed"})


# --- DROP


def test_drop(standing: Catalog) -> None:
    assert [e.code for e in _errors("DROP VIEW v", standing)] == ["P0222"]
    dropped = _as(DropCommand, "DROP VIEW V CASCADE", standing)
    assert dropped.drops == (
        Dropped("QUERY", "q"),
        Dropped("QUERY", "p"),
        Dropped("VIEW", "w"),
        Dropped("VIEW", "v"),
    )
    after = applied(dropped, standing)
    assert (set(after.queries), set(after.views), set(after.registered)) == ({"e"}, set(), {"e"})
    assert _as(DropCommand, "DROP QUERY IF EXISTS q", standing).if_exists
    assert isinstance(_bound("DROP QUERY IF EXISTS nope", standing), Unchanged)
    assert [e.code for e in _errors("DROP QUERY nope", standing)] == ["P0201"]
    assert [e.hint for e in _errors("DROP QUERY IF EXISTS v", standing)] == ["DROP VIEW v"]


# --- ALTER


@pytest.mark.parametrize(
    ("action", "change"),
    [
        ("PAUSE", Pause()),
        ("PAUSE WITH STATE", Pause(True)),
        ("RESUME", Resume()),
        ("RESUME START WARM RESET", Resume(Start(StartMode.WARM), True)),
        ("SET (weight 0, comment '')", SetAttributes({"weight": "0", "comment": ""})),
        ("RENAME TO z", RenameTo("z")),
        ("RENAME TO Q", RenameTo("Q")),
        ("INTO FILES (path 'out.csv')", MoveInto(SinkSpec("FILES", (("path", "out.csv"), ("format", "csv"))))),
        ("SWAP WITH E", SwapWith("e")),
    ],
)
def test_changes_of_a_query(action: str, change: object, standing: Catalog) -> None:
    assert _as(AlterQuery, f"ALTER QUERY Q {action}", standing) == AlterQuery("q", change)  # type: ignore[arg-type]


def test_another_query_under_the_same_name(standing: Catalog) -> None:
    text = "ALTER QUERY q AS SELECT COUNT(*) AS c FROM s START AT '1970-01-01' RESET"
    action = _as(AlterQuery, text, standing).action
    assert isinstance(action, ReplaceQuery)
    assert (action.query.name, action.query.root.schema.names, action.text) == (
        "q",
        ("c",),
        "SELECT COUNT(*) AS c FROM s",
    )
    assert (action.start, action.reset, action.reads) == (Start(StartMode.AT, 0), True, frozenset({"s"}))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ALTER QUERY nope PAUSE", "P0201"),
        ("ALTER QUERY s PAUSE", "P0201"),
        ("ALTER QUERY q RENAME TO v", "P0206"),
        ("ALTER QUERY q SWAP WITH q", "P0103"),
        ("ALTER QUERY q SWAP WITH nope", "P0201"),
        ("ALTER QUERY q INTO NOWHERE ()", "P0208"),
        ("ALTER QUERY q SET (wait 1)", "P0104"),
        ("ALTER QUERY q SET (weight 1, weight 2)", "P0104"),
        ("ALTER QUERY q SET (weight 'heavy')", "P0104"),
        ("ALTER QUERY q SET (weight 'nan')", "P0104"),
        ("ALTER QUERY q SET (on_failure 'cry')", "P0104"),
        ("ALTER QUERY q SET (sink_retry '5')", "P0104"),
        ("ALTER QUERY q AS SELECT nope FROM s", "P0202"),
        ("ALTER QUERY q AS SELECT a FROM q", "P0201"),
        ("ALTER QUERY q RESUME START AT 5", "P0102"),
    ],
)
def test_changes_that_are_refused(text: str, code: str, standing: Catalog) -> None:
    assert [e.code for e in _errors(text, standing)] == [code]


def test_describe_suggests_names_as_they_are_declared() -> None:
    trades = "CREATE STREAM Trades (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts;"
    catalog = bind_script(f"{trades} CREATE VIEW Large AS SELECT v FROM Trades;").catalog
    assert [e.hint for e in _errors("DESCRIBE trade", catalog)] == ["did you mean Trades?"]
    assert [e.hint for e in _errors("DESCRIBE nope", catalog)] == ["known: Large, Trades"]


def test_the_nearest_attribute_is_suggested(standing: Catalog) -> None:
    (error,) = _errors("CREATE QUERY z WITH (wieght 1) AS SELECT a FROM s", standing)
    assert (error.message, error.hint) == ("query z has no attribute wieght", "did you mean weight?")


def test_the_catalog_after_changes_of_queries(standing: Catalog) -> None:
    def after(action: str) -> Catalog:
        return applied(_bound(f"ALTER QUERY q {action}", standing), standing)

    renamed = after("RENAME TO z")
    assert (renamed.queries["z"].name, renamed.registered["z"].id, renamed.reads["z"]) == ("z", 9, frozenset({"v"}))
    assert "q" not in renamed and "q" not in renamed.registered
    assert after("SET (comment 'x')").registered["q"].attributes == {"weight": "2", "comment": "x"}
    assert after("INTO MEMORY ()").queries["q"].sink == SinkSpec("MEMORY")
    assert after("AS SELECT a + 1 AS a FROM s").reads["q"] == frozenset({"s"})
    swapped = after("SWAP WITH p")
    assert swapped.queries["q"].root is standing.queries["p"].root
    assert (swapped.registered["q"].id, swapped.registered["p"].id) == (10, 9)
    assert (swapped.reads["p"], swapped.queries["p"].name) == (frozenset({"v"}), "p")


def test_attributes_of_sources(standing: Catalog) -> None:
    text = "ALTER STREAM s SET (slack '5 seconds', idle_timeout '1 min', retain '2 hours', on_error 'skip', {})"
    altered = _as(AlterSource, text.format("rate_limit 10"), standing)
    source = altered.source
    assert (source.slack, source.idle, source.retain) == (5_000_000, 60_000_000, 7_200_000_000)
    assert (source.on_error, source.option("rate_limit")) == (OnError.SKIP, "10")
    assert altered.values["retain"] == "2 HOUR"
    catalog = applied(altered, standing)
    assert catalog.sources["s"] == source
    text = "ALTER STREAM s SET (retain 'none', rate_limit 'none', slack 'none')"
    cleared = _as(AlterSource, text, catalog)
    assert (cleared.source.retain, cleared.source.slack, cleared.source.options) == (None, 0, ())


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ALTER STREAM nope SET (slack '1 s')", "P0201"),
        ("ALTER STREAM prices SET (slack '1 s')", "P0201"),
        ("ALTER STREAM v SET (slack '1 s')", "P0201"),
        ("ALTER STREAM s SET (slak '1 s')", "P0104"),
        ("ALTER STREAM s SET (slack '1')", "P0104"),
        ("ALTER STREAM n SET (slack '1 ms')", "P0303"),
        ("ALTER STREAM n SET (retain '0 seconds')", "P0102"),
        ("ALTER STREAM n SET (rate_limit 5)", "P0104"),
        ("ALTER STREAM s SET (rate_limit 0)", "P0104"),
        ("ALTER RELATION prices SET (slack '1 s')", "P0104"),
        ("ALTER RELATION fixed SET (idle_timeout '1 s')", "P0104"),
    ],
)
def test_attributes_of_sources_that_are_refused(text: str, code: str, standing: Catalog) -> None:
    assert [e.code for e in _errors(text, standing)] == [code]


def test_settings(standing: Catalog) -> None:
    assert _bound("ALTER SYSTEM SET max_batch_rows = 5", standing) == AlterSystem("max_batch_rows", "5")
    changed = _as(ChangeSetting, "SET seed = 5", standing)
    assert (changed.key, changed.value, changed.settings["seed"]) == ("seed", "5", 5)
    for text in (
        "ALTER SYSTEM SET seed = x",
        "ALTER SYSTEM SET nope = 1",
        "ALTER SYSTEM SET spark.a = 1",
        "ALTER SYSTEM SET metrics_port = 1",
    ):
        assert [e.code for e in _errors(text, standing)] == ["P0104"]


def test_what_show_settings_lists_can_be_set(standing: Catalog) -> None:
    texts = [text for _, text in _as(ShowCommand, "SHOW SETTINGS", standing).entries]
    assert {"sink_retry = '10 s'", "seed = 0", "max_batch_bytes = '256 MB'", "statistics = ''"} <= set(texts)
    settings = Settings().with_value("statistics", "s(rate 10)")
    assert dict(settings.written())["statistics"] == "'s(rate 10)'"
    for text in texts:
        command = _as(ChangeSetting, f"SET {text}", standing)
        assert Settings().with_value(command.key, command.value)[command.key] == Settings()[command.key], text


def test_every_attribute_has_a_help() -> None:
    for table in (QUERY_ATTRIBUTES, SOURCE_ATTRIBUTES):
        assert all(option.help for option in table)
        assert list(table.names) == sorted(table.names)


# --- rows


def test_insert(standing: Catalog) -> None:
    rows = _as(InsertRows, "INSERT INTO prices (price, item, at) VALUES (2.5, 'tea', 1), (3, 'rum', 2)", standing)
    assert rows == InsertRows("prices", (("tea", 2.5, 1, "+"), ("rum", 3.0, 2, "+")))
    assert _as(InsertRows, "INSERT INTO n (tick) VALUES (1)", standing).rows == ((None, 1),)
    assert applied(rows, standing).memory["prices"] == rows.rows
    exact = applied(_bound("CREATE RELATION exact (d DECIMAL(38,10)) FROM MEMORY ()", standing), standing)
    negative = _as(InsertRows, "INSERT INTO exact VALUES (-12345678901234567890.0123456789)", exact)
    assert str(negative.rows[0][0]) == "-12345678901234567890.0123456789"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("INSERT INTO n (tick, nope) VALUES (1, 2)", "P0202"),
        ("INSERT INTO n (tick, TICK) VALUES (1, 2)", "P0206"),
        ("INSERT INTO n (tick) VALUES (1, 2)", "P0305"),
        ("INSERT INTO filed VALUES (1, NULL)", "P0208"),
        ("INSERT INTO q VALUES (1)", "P0201"),
    ],
)
def test_rows_that_are_refused(text: str, code: str, standing: Catalog) -> None:
    assert [e.code for e in _errors(text, standing)] == [code]


def test_update(standing: Catalog) -> None:
    text = "UPDATE prices SET price = price * 2, at = 9 WHERE item LIKE 't%' AND prices.price > 1"
    command = _as(UpdateRows, text, standing)
    names = standing.sources["prices"].columns.names
    assert command.relation == "prices"
    assert [(i, to_sql(value, names)) for i, value in command.assignments] == [
        (1, "price * 2"),
        (2, "9"),
    ]
    assert command.condition is not None
    assert to_sql(command.condition, names) == "item LIKE 't%' AND price > 1"
    assert _as(UpdateRows, "UPDATE rates SET rate = '1.5', at = 1", standing).condition is None
    assert _as(UpdateRows, "UPDATE stock SET item = 'x'", standing).assignments[0][0] == 0


def test_delete(standing: Catalog) -> None:
    command = _as(DeleteRows, "DELETE FROM stock WHERE n < 3", standing)
    assert command.condition is not None
    assert to_sql(command.condition, standing.sources["stock"].columns.names) == "n < 3"
    assert _bound("DELETE FROM Stock", standing) == DeleteRows("stock")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("UPDATE nope SET a = 1", "P0201"),
        ("UPDATE s SET a = 1", "P0201"),
        ("UPDATE v SET a = 1", "P0201"),
        ("UPDATE filed SET a = 1", "P0208"),
        ("UPDATE fixed SET v = 'x'", "P0209"),
        ("UPDATE prices SET price = 1", "P0209"),
        ("UPDATE prices SET op = '-', at = 1", "P0209"),
        ("UPDATE rates SET name = 'x', at = 1", "P0210"),
        ("UPDATE prices SET nope = 1, at = 1", "P0202"),
        ("UPDATE prices SET price = 1, PRICE = 2, at = 1", "P0206"),
        ("UPDATE prices SET price = 'dear', at = 1", "P0203"),
        ("UPDATE prices SET price = item, at = 1", "P0203"),
        ("UPDATE prices SET price = 1, at = 1 WHERE item", "P0203"),
        ("UPDATE prices SET price = SUM(price), at = 1", "P0304"),
        ("DELETE FROM rates", "P0209"),
        ("DELETE FROM prices WHERE item = 'tea'", "P0209"),
        ("DELETE FROM nope", "P0201"),
        ("DELETE FROM stock WHERE n", "P0203"),
        ("UPDATE stock SET n = (SELECT MAX(a) FROM s [NOW])", "P0312"),
    ],
)
def test_changes_of_rows_that_are_refused(text: str, code: str, standing: Catalog) -> None:
    assert [e.code for e in _errors(text, standing)] == [code]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("DELETE FROM s", "a stream only receives rows"),
        ("ALTER STREAM rates SET (retain '1 HOUR')", "ALTER RELATION rates SET"),
        ("UPDATE s SET a = 1", "a stream only receives rows"),
        ("UPDATE stock SET n = (SELECT MAX(a) FROM s [NOW])", "read the row alone that they change"),
        ("DELETE FROM stock WHERE n < (SELECT MAX(a) FROM s [NOW])", "read the row alone that they change"),
        ("INSERT INTO n (tick) VALUES ((SELECT MAX(a) FROM s [NOW]))", "SELECT the value first"),
        ("SUBSCRIBE TO s", "SUBSCRIBE TO (SELECT * FROM s)"),
    ],
)
def test_changes_of_rows_have_hints(text: str, hint: str, standing: Catalog) -> None:
    (error,) = _errors(text, standing)
    assert hint in str(error.hint)


def test_a_hint_has_names_as_they_are_written(standing: Catalog) -> None:
    text = "CREATE STREAM `a ``b` (t INT) FROM MEMORY () TIMESTAMP BY t"
    catalog = applied(_bound(text, standing), standing)
    catalog = applied(_bound("CREATE VIEW w2 AS SELECT t FROM `a ``b`", catalog), catalog)
    assert str(_errors("DROP STREAM `a ``b`", catalog)[0].hint).endswith("DROP STREAM `a ``b` CASCADE")
    hint = str(_errors(text, catalog)[0].hint)
    assert hint.startswith("a server changes its attributes by ALTER STREAM `a ``b` SET (...)")
    assert "otherwise DROP STREAM `a ``b` first" in hint


# --- reading


def test_subscribe(standing: Catalog) -> None:
    assert _bound("SUBSCRIBE TO Q", standing) == Subscribe("q")
    whole = _bound("SUBSCRIBE TO q WITH (SNAPSHOT, PROGRESS) AS OF '1970-01-01' UP TO '1970-01-02'", standing)
    assert whole == Subscribe("q", True, True, 0, 86_400_000_000)
    own = _as(Subscribe, "SUBSCRIBE TO (SELECT a FROM n) AS OF 3", standing)
    assert not isinstance(own.query, str) and own.query.text == "SELECT a FROM n"
    assert own.as_of == 3


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SUBSCRIBE TO nope", "P0201"),
        ("SUBSCRIBE TO s", "P0201"),
        ("SUBSCRIBE TO e WITH (SNAPSHOT)", "P0103"),
        ("SUBSCRIBE TO e AS OF '2024-01-01'", "P0102"),
        ("SUBSCRIBE TO e AS OF 5 UP TO 4", "P0102"),
        ("DESCRIBE nope", "P0201"),
        ("EXPLAIN START QUERY nope", "P0201"),
        ("EXPLAIN SHARING QUERY nope", "P0201"),
        ("SELECT a FROM nope", "P0201"),
    ],
)
def test_reading_that_is_refused(text: str, code: str, standing: Catalog) -> None:
    assert [e.code for e in _errors(text, standing)] == [code]


def test_the_other_statements(standing: Catalog) -> None:
    assert _bound("CANCEL 'x-1'", standing) == Cancel("x-1")
    assert _bound("BEGIN", standing) == BeginTransaction()
    assert _bound("COMMIT", standing) == CommitTransaction()
    assert _bound("ROLLBACK", standing) == RollbackTransaction()
    assert _bound("SHOW VERSIONS", standing) == ShowCommand("VERSIONS")
    assert [name for name, _ in _as(ShowCommand, "SHOW QUERIES", standing).entries] == ["q", "p", "e"]
    assert ("seed", "seed = 0") in _as(ShowCommand, "SHOW SETTINGS", standing).entries
    described = _as(Describe, "DESCRIBE Q", standing)
    assert (described.name, described.kind) == ("q", "QUERY")
    assert described.columns == (("a", "INT"),)
    assert _as(Describe, "DESCRIBE fixed", standing).columns == (("k", "INT"), ("v", "STRING"))
    explained = _as(ExplainCommand, "EXPLAIN START QUERY q", standing)
    assert (explained.kind, explained.query.name, explained.registered) == (ExplainKind.START, "q", True)
    shared = _as(ExplainCommand, "EXPLAIN SHARING SELECT a FROM s [ROWS 3]", standing)
    assert (shared.kind, shared.registered) == (ExplainKind.SHARING, False)
    assert _as(ExplainCommand, "EXPLAIN ANALYZE SELECT a FROM s", standing).kind is ExplainKind.ANALYZE


# --- without a server

NEEDS_A_SERVER = [
    "ALTER QUERY q PAUSE", "ALTER STREAM s SET (slack '1 s')", "ALTER SYSTEM SET seed = 1", "UPDATE u SET a = 1",
    "DELETE FROM u", "SUBSCRIBE TO q", "CANCEL 1", "BEGIN", "COMMIT", "ROLLBACK", "SHOW COMMANDS", "SHOW VERSIONS",
    "SHOW SUBSCRIPTIONS", "EXPLAIN START SELECT a FROM s", "EXPLAIN SHARING SELECT a FROM s",
    "CREATE QUERY z START WARM AS SELECT a FROM s",
    "CREATE QUERY z START AT '2024-01-01' AS SELECT a FROM s", "CREATE QUERY z WITH (weight 2) AS SELECT a FROM s",
    "CREATE STREAM z (a INT) FROM HTTP () TIMESTAMP BY a",
    "CREATE STREAM z (a INT) FROM MEMORY () TIMESTAMP BY a RETAIN 1 DAY",
]  # fmt: skip


@pytest.mark.parametrize("text", NEEDS_A_SERVER)
def test_what_needs_a_server(text: str, catalog: Catalog) -> None:
    with pytest.raises(ScriptErrors) as raised:
        bind_script(text, catalog)
    (error,) = raised.value.errors
    assert error.code == "P0702" and error.position is not None
    assert error.message.endswith("needs a server") and error.hint is not None


def test_what_a_live_run_can_do_without_a_server(catalog: Catalog) -> None:
    text = """CREATE STREAM z (a INT) FROM MEMORY () TIMESTAMP BY a RETAIN 1 DAY;
        CREATE QUERY y START AT 5 AS SELECT a FROM z"""
    bound = bind_script(text, catalog, live=True)
    assert bound.catalog.registered["y"].start == Start(StartMode.AT, 5)


def test_statements_that_a_script_can_have_too(catalog: Catalog) -> None:
    bound = bind_script(
        """
        CREATE STREAM IF NOT EXISTS s (nonsense INT) FROM MEMORY () SYSTEM TIME;
        CREATE VIEW one AS SELECT a FROM s;
        CREATE OR REPLACE VIEW one AS SELECT a, b FROM s;
        CREATE QUERY q START NOW WITH (comment 'mine') AS SELECT a FROM one;
        CREATE QUERY q2 START BEGINNING AS SELECT b FROM one;
        CREATE OR REPLACE QUERY q AS SELECT b FROM one;
        CREATE QUERY IF NOT EXISTS q AS SELECT nope FROM one;
        INSERT INTO r (name) VALUES ('x');
        DESCRIBE q;
        EXPLAIN QUERY q;
        DROP QUERY IF EXISTS q9;
        CREATE VIEW two AS SELECT a FROM u;
        CREATE VIEW three AS SELECT a FROM two;
        DROP RELATION u CASCADE;
        """,
        catalog,
    )
    assert [q.name for q in bound.queries] == ["q", "q2"]
    assert bound.queries[0].root.schema.names == ("b",)
    assert bound.catalog.registered["q2"].start == Start(StartMode.BEGINNING)
    assert bound.catalog.memory["r"] == ((None, "x"),)
    assert set(bound.catalog.views) == {"one"} and "u" not in bound.catalog
    described = bound.actions[0]
    assert described.entries[1:] == (("ts", "  ts  TIMESTAMP"), ("b", "  b   STRING"))


def test_the_code_is_in_the_catalogue() -> None:
    assert "P0702" in CODES
