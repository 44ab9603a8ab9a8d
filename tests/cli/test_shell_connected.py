"""`penstock shell --connect`: the shell of a server that runs in this process, without a JVM."""

from __future__ import annotations

import io
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from penstock.cli.shell import following
from penstock.cli.shell.following import RelationContent
from penstock.cli.shell.server_side import ServerSide
from penstock.cli.shell.shell import Shell
from penstock.cli.shell.terminal import Terminal
from penstock.client import connect
from penstock.connectors.sinks.output import OutputFormat
from penstock.engines.in_process_results import InProcessResults
from penstock.errors import PenstockError
from penstock.server.addresses import Address
from penstock.server.http.application.server import HttpServer
from penstock.server.roles import AccessRole
from tests.server.conftest import fake, serve, server  # noqa: F401 - fixtures
from tests.server.fake_service import FakeService, eventually
from tests.server.running import Running
from tests.server.test_live_service import ROWS, WARM, ended, started

pytestmark = pytest.mark.server


class Screen(io.StringIO):
    """Standard output in memory, at a terminal."""

    def isatty(self) -> bool:
        return True


class Connected:
    """A shell of a server, whose output is in memory."""

    def __init__(
        self,
        running: Running,
        form: OutputFormat = OutputFormat.CSV,
        person: bool = False,
        role: AccessRole = AccessRole.ADMIN,
    ) -> None:
        self.client = connect(running.url, running.texts[role], patience=10)
        self.out, self.err = Screen() if person else io.StringIO(), io.StringIO()
        self.side = ServerSide(self.client)
        self.shell = Shell(self.side, self.out, self.err, form, person, keep_going=True)

    def __call__(self, text: str, name: str | None = None) -> tuple[str, str]:
        """Return what is written to standard output and to standard error."""
        for stream in (self.out, self.err):
            stream.seek(0)
            stream.truncate()
        self.shell.read(text.splitlines(keepends=True), name)
        return self.out.getvalue(), self.err.getvalue()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = started(tmp_path_factory.mktemp("live"))
    yield running
    ended(running)


@pytest.fixture
def told(live: Running) -> Iterator[Connected]:
    made = Connected(live)
    with made.client:
        yield made


@pytest.fixture(autouse=True)
def keyboard() -> Iterator[None]:
    """Have Ctrl-C raise KeyboardInterrupt, also where the tests run in the background, in which a shell ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted_when(condition: Callable[[], bool]) -> None:
    """Have Ctrl-C pressed when a condition holds."""

    def press() -> None:
        eventually(condition, 20)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()


# --- statements -------------------------------------------------------------------------------------------------------


def test_statements_and_what_is_declared(told: Connected) -> None:
    assert told("SELECT room FROM rooms\nWHERE floor > 1; SELECT COUNT(*) AS n FROM rooms;") == (
        "room\nattic\nn\n2\n",
        "",
    )
    assert told(WARM.replace("warm", "w1", 1) + ";") == ("", "")
    assert told("CREATE VIEW low AS SELECT room AS `a b` FROM rooms WHERE floor < 1;") == ("", "")
    listed = told("SHOW QUERIES;")[0]
    assert listed.startswith("name,state,kind,result,remark,statement\n") and "CREATE QUERY w1" in listed
    assert told("SHOW VIEWS;")[0].startswith("name,statement\nlow,")
    assert told("SHOW VERSIONS;")[0].startswith("version,commands\n")
    told("\\format table")
    listed, _ = told("\\d")
    for words in (("readings", "stream", "HTTP"), ("w1", "query", "RUNNING"), ("low", "view")):
        assert any(all(word in line for word in words) for line in listed.splitlines())
    shown, _ = told("\\d LOW")
    assert "view low" in shown and "a b" in shown and "STRING" in shown and "CREATE VIEW" in shown
    shown, _ = told("\\d w1")
    assert "query w1, RUNNING" in shown and "celsius" in shown and "op" not in shown.split("CREATE")[0].split()
    assert "did you mean w1?" in told("\\d w1w")[1]
    out, err = told("SELECT room FROM rooms WHERE floor = 0;\n\\watch 0.01 2")
    assert out.count("hall") == 3 and "(1 row" in out and err == ""
    assert told("DROP QUERY w1; DROP VIEW low;\n\\format csv") == ("", "")


def test_a_person_is_told_what_became_of_a_command(live: Running) -> None:
    person = Connected(live, OutputFormat.TABLE, person=True)
    with person.client:
        out, err = person("CREATE VIEW seen AS SELECT room FROM rooms;")
        assert out.startswith("CREATE VIEW: ") and "(command " in out and err == ""
        person("DROP VIEW seen;")


def test_errors_are_at_their_place_in_the_file(told: Connected) -> None:
    text = "SELECT room FROM rooms LIMIT 0;\n\n  SELECT roam FROM rooms; SELECT\n a FROM nowhere;\n"
    out, err = told(text, "f.cql")
    assert out == "room\n"
    assert err.splitlines()[:4] == [
        "f.cql:3:10: error P0202: unknown column roam",
        "    SELECT roam FROM rooms;",
        "           ^^^^",
        "  hint: did you mean room?",
    ]
    assert "f.cql:4:" in err and "P0201" in err
    assert told("SELEC 1;")[1].startswith("line 1:1: error P0101")
    assert told.shell.failed


def test_settings_are_those_of_the_session(told: Connected) -> None:
    half = "SELECT 5 / 2 AS h FROM rooms LIMIT 1;"
    assert told(f"{half} SET integer_division = true; {half} SET integer_division = false; {half}")[0] == (
        "h\n2.5\nh\n2\nh\n2.5\n"
    )
    assert "P0104" in told("SET no_such_setting = 1;")[1]
    assert told(half) == ("h\n2.5\n", "")
    # It holds for the statements of the session.
    assert told("SET integer_division = true;") == ("", "")
    assert told(half) == ("h\n2\n", "")


def test_a_transaction_is_executed_as_a_whole(told: Connected) -> None:
    before = told.client.catalog()
    assert told("BEGIN;\nCREATE VIEW t1 AS SELECT room FROM rooms;") == ("", "")
    assert told.client.catalog() == before
    out, err = told("CREATE VIEW t2 AS SELECT wrd FROM rooms; COMMIT;")
    assert out == "" and "P0202" in err and told.client.catalog() == before
    text = "\nBEGIN; CREATE VIEW t1 AS SELECT room FROM rooms;\n CREATE VIEW t2 AS\nSELECT wrd FROM t1;\nCOMMIT;"
    assert told(text, "t.cql")[1].startswith("t.cql:4:8: error P0202")
    assert told("BEGIN; CREATE VIEW t1 AS SELECT room FROM rooms; ROLLBACK;")[1] == ""
    assert told.client.catalog() == before
    assert (
        told("BEGIN; CREATE VIEW t1 AS SELECT room FROM rooms; CREATE VIEW t2 AS SELECT room FROM t1; COMMIT;")[1] == ""
    )
    assert {one.name for one in told.client.catalog().views} == {"t1", "t2"}
    told("DROP VIEW t2; DROP VIEW t1; BEGIN; DROP RELATION rooms;")
    told.shell.finish()
    assert "P0732" in told.err.getvalue() and "no COMMIT" in told.err.getvalue()
    assert told("SELECT COUNT(*) AS n FROM rooms;")[0] == "n\n2\n"


def test_a_role_that_may_only_read(live: Running) -> None:
    reader = Connected(live, role=AccessRole.READ)
    with reader.client:
        assert "P0802" in reader("DROP RELATION rooms;")[1]
        assert reader("SELECT COUNT(*) AS n FROM rooms;")[0] == "n\n2\n"


# --- completion -------------------------------------------------------------------------------------------------------


def test_names_of_the_server_are_completed(told: Connected) -> None:
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        terminal = Terminal(told.side.declared)

        def type_it() -> None:
            pipe.send_text("SELECT celsi\t")
            time.sleep(1.0)
            pipe.send_text("us FROM\nreadi\t")
            time.sleep(1.0)
            pipe.send_text(";\n")

        threading.Thread(target=type_it, daemon=True).start()
        assert terminal.read().replace("celsiusus", "celsius") == "SELECT celsius FROM\nreadings;"


def test_a_completion_never_fails(told: Connected) -> None:
    assert "rooms" in told.side.declared().objects
    gone = connect("http://127.0.0.1:9", patience=0.1)
    side = ServerSide(gone)
    assert side.declared().objects == {}
    with pytest.raises(PenstockError, match="P0808"):
        side.declared(fresh=True)


# --- results as they come ---------------------------------------------------------------------------------------------


def test_rows_are_appended_until_ctrl_c(live: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def given_up(*_: object) -> None:
        raise PenstockError("P0711", "the content of w2 is not kept")

    person = Connected(live, person=True)
    with person.client:
        person(WARM.replace("warm", "w2", 1) + ";")
        threading.Timer(0.3, lambda: person.client.insert("readings", ROWS)).start()
        interrupted_when(lambda: "attic" in person.out.getvalue())
        out, err = person("SUBSCRIBE TO w2;\nSELECT COUNT(*) AS n FROM rooms;")
        assert out.startswith("ts,op,room,celsius\n2024-03-01T09:00:00Z,+,hall,19.5\n") and err == ""
        assert out.count("ts,op") == 1 and out.endswith("n\n2\n")
        # Where there is no snapshot any more, the live table becomes one of changes.
        monkeypatch.setattr(InProcessResults, "_begin_with_content", given_up)
        person("\\format table")
        threading.Timer(
            0.3, lambda: person.client.insert("readings", [ROWS[2] | {"at": "2024-03-01 12:00:00"}])
        ).start()
        interrupted_when(lambda: "12:00" in person.out.getvalue() or "11:10" in person.out.getvalue())
        out, err = person("SUBSCRIBE TO w2;")
        assert "its changes are shown" in err and "op" in out and out.rstrip().endswith("rows)")
        person("DROP QUERY w2;")


def test_ctrl_c_ends_a_program(live: Running) -> None:
    program = Connected(live)
    with program.client:
        program(WARM.replace("warm", "w3", 1) + ";")
        begun = time.monotonic()
        interrupted_when(lambda: time.monotonic() > begun + 0.5)
        with pytest.raises(KeyboardInterrupt):
            program("SUBSCRIBE TO w3;")
        assert program("DROP QUERY w3;") == ("", "")


def emit(fake: FakeService, *rows: tuple[str, str, int]) -> None:  # noqa: F811
    fake.emit("warm", *rows)


@pytest.fixture
def watcher(server: Running) -> Iterator[Connected]:  # noqa: F811
    made = Connected(server, OutputFormat.TABLE, person=True)
    with made.client:
        yield made


def frames(screen: str) -> str:
    """The last table on a screen that was drawn again and again."""
    return screen[screen.rindex("┏") :]


@pytest.fixture
def relation(fake: FakeService) -> None:  # noqa: F811
    fake.session.execute(
        "DROP QUERY warm; CREATE QUERY warm AS SELECT room, COUNT(*) AS n FROM readings [RANGE 1 HOUR] GROUP BY room"
    )


def test_the_content_of_a_relation_is_drawn_again(watcher: Connected, fake: FakeService, relation: None) -> None:  # noqa: F811
    emit(fake, ("+", "hall", 1), ("+", "attic", 2))

    def change() -> None:
        eventually(lambda: "2 rows" in watcher.out.getvalue())
        emit(fake, ("-", "hall", 1), ("+", "hall", 7), ("+", "hall", 7), ("p", "", 0))

    threading.Thread(target=change, daemon=True).start()
    interrupted_when(lambda: "3 rows" in watcher.out.getvalue())
    out, err = watcher("SUBSCRIBE TO warm;")
    last = frames(out)
    assert err == "" and [word for word in ("attic", "hall", "7") if word in last] == ["attic", "hall", "7"]
    assert last.count("hall") == 2 and " 1 " not in last and "(3 rows, as of 1970-01-01T00:00:00Z; Ctrl-C ends" in last
    assert watcher("\\format csv") == ("", "")


def test_more_rows_than_the_screen_has(
    watcher: Connected,
    fake: FakeService,  # noqa: F811
    relation: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LINES", "20")
    monkeypatch.setenv("COLUMNS", "60")
    emit(fake, *(("+", f"room {n:03}", n) for n in range(100)))
    interrupted_when(lambda: "and 87 more rows" in watcher.out.getvalue())
    out, _ = watcher("SUBSCRIBE TO warm;")
    assert "room 000" in out and "room 012" in out and "room 013" not in out
    monkeypatch.setattr(following, "MOST_ROWS", 99)
    assert "P0804" in watcher("SUBSCRIBE TO warm;")[1]


def test_a_subscription_goes_on_after_a_restart(serve: Callable[..., Running], fake: FakeService) -> None:  # noqa: F811
    first = serve()
    program = Connected(first, OutputFormat.CSV, person=True)

    def restart() -> None:
        eventually(lambda: "hall,1" in program.out.getvalue())
        first.server.close()
        emit(fake, ("+", "hall", 2))
        eventually(lambda: "tried again" in program.err.getvalue())
        again = HttpServer(first.door, Address("127.0.0.1", first.server.address.port))
        first.door.closing.clear()
        emit(fake, ("+", "hall", 3))
        eventually(lambda: "hall,3" in program.out.getvalue(), 20)
        again.close()

    with program.client:
        threading.Timer(0.5, lambda: emit(fake, ("+", "hall", 1))).start()
        threading.Thread(target=restart, daemon=True).start()
        interrupted_when(lambda: "hall,3" in program.out.getvalue())
        out, err = program("SUBSCRIBE TO warm;")
    assert [line[-1] for line in out.splitlines()[1:]] == ["1", "2", "3"]
    assert err.count("tried again") >= 1


def test_unknown_queries_cannot_be_followed(watcher: Connected) -> None:
    out, err = watcher("SUBSCRIBE TO nothing;")
    assert out == "" and "P0201" in err
    assert "P0201" in watcher("\\format csv\nSUBSCRIBE TO nothing;")[1]


# --- the fold of changes ----------------------------------------------------------------------------------------------


def changes(*rows: tuple[str, object, object]) -> pa.RecordBatch:
    schema = pa.schema([("ts", pa.int32()), ("op", pa.string()), ("a", pa.float64()), ("b", pa.list_(pa.int32()))])
    columns = [[5] * len(rows), *(list(column) for column in zip(*rows, strict=True))]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def test_equal_values_are_one() -> None:
    content = RelationContent()
    nan = float("nan")
    content.add(changes(("+", nan, [1]), ("+", 0.0, None), ("+", None, []), ("+", 2.0, [2]), ("+", 2.0, [2])))
    assert len(content) == 5 and content.instant == "5"
    assert content.first(9).column("b").to_pylist() == [None, [2], [2], [1], []]
    content.add(changes(("-", float("nan"), [1]), ("-", -0.0, None), ("-", 2.0, [2]), ("p", None, None)))
    assert content.first(9).to_pylist() == [{"a": 2.0, "b": [2]}, {"a": None, "b": []}]
    content.add(changes(("-", None, []), ("-", 2.0, [2])))
    assert len(content) == 0 and content.first(3).num_rows == 0
