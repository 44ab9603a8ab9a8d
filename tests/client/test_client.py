"""The Python client against a server: rows, errors, lost connections."""

from __future__ import annotations

import datetime as dt
import gc
import io
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pandas as pd
import pyarrow as pa
import pytest
from httpcore import ConnectionPool

from penstock.client import ServerClient, connect
from penstock.client.answers import RemoteRows
from penstock.client.rows import arrow_table
from penstock.errors import PenstockError, ScriptErrors
from penstock.server.addresses import Address
from penstock.server.http.application.server import HttpServer
from penstock.server.roles import AccessRole
from tests.server.conftest import fake, serve, server  # noqa: F401 - fixtures
from tests.server.fake_service import FakeService, eventually
from tests.server.running import Running


@pytest.fixture
def connected(server: Running) -> Iterator[ServerClient]:  # noqa: F811
    with connect(server.url, server.texts[AccessRole.ADMIN], patience=10) as made:
        yield made


def test_statements_and_what_there_is(connected: ServerClient) -> None:
    created, shown = connected.execute("CREATE VIEW v AS SELECT room FROM readings; SHOW VIEWS")
    assert (created.number, created.state, shown.state) == (1, "RUNNING", "DONE") and "v" in (shown.text or "")
    (query,) = connected.queries()
    assert query.name == "warm" and query.columns[2] == ("room", "STRING")
    assert connected.query("warm") == query
    assert [command.number for command in connected.commands()] == [1]
    assert connected.command(1).who == "admin"
    assert connected.execute("DROP QUERY warm", dry=True)[0].state == "CHECKED"
    assert repr(connected).startswith("ServerClient(http://127.0.0.1:")


def test_rows_go_in_and_come_out_with_their_types(connected: ServerClient) -> None:
    rows = [
        {"at": dt.datetime(2024, 3, 1, tzinfo=dt.UTC), "room": "hall", "n": 2**60, "cost": Decimal("1.5")},
        {"at": dt.datetime(2024, 3, 2, tzinfo=dt.UTC), "room": None, "n": None, "cost": None},
    ]
    assert connected.insert("readings", rows) == 2
    frame = pd.DataFrame({"at": pd.to_datetime(["2024-03-03"], utc=True), "room": pd.Categorical(["attic"])})
    assert connected.insert("readings", frame) == 1
    batch = pa.RecordBatch.from_pydict({"at": pa.array([0], pa.timestamp("us", "UTC"))})
    assert connected.insert("readings", batch, key="k") == connected.insert("readings", batch, key="k") == 1
    assert connected.insert("readings", []) == connected.insert("readings", iter(())) == 0
    found = connected.select("SELECT room, n, cost FROM readings WHERE at > '2000-01-01' ORDER BY at")
    assert found.to_arrow().column("n").to_pylist() == [2**60, None, None]
    assert found.to_arrow().schema.field("cost").type == pa.decimal128(20, 4)
    assert list(found.to_pandas()["room"]) == ["hall", None, "attic"]
    assert found.instant == "2024-03-03T00:00:00Z" and len(found) == 3


def test_many_rows_are_posted_in_parts(connected: ServerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.rows.PART_BYTES", 1_000)
    table = pa.table({"at": pa.array(range(1_000), pa.timestamp("us", "UTC"))})
    assert connected.insert("readings", table) == 1_000
    assert connected.select("SELECT COUNT(*) AS n FROM readings").to_arrow().to_pylist() == [{"n": 1_000}]


def thousand(connected: ServerClient, monkeypatch: pytest.MonkeyPatch, piece: int) -> str:
    """Insert 1,000 rows, and have the server write so many bytes at once; return the question for all."""
    instants = [dt.datetime(2024, 3, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=n) for n in range(1_000)]
    connected.insert("readings", [{"at": at, "room": "hall", "n": n} for n, at in enumerate(instants)])
    monkeypatch.setattr("penstock.server.http.formats._PIECE_BYTES", piece)
    return "SELECT at, room, n FROM readings ORDER BY n"


def test_an_answer_comes_batch_by_batch(connected: ServerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    question = thousand(connected, monkeypatch, 1_000)
    with connected.select_batches(question) as rows:
        assert rows.schema.names == ["at", "room", "n"] and rows.instant == "2024-03-01T00:16:39Z"
        batches = list(rows)
        assert next(rows, None) is None
    assert len(batches) > 10 and max(batch.num_rows for batch in batches) < 100
    assert pa.Table.from_batches(batches) == connected.select(question).to_arrow().combine_chunks()
    assert pa.Table.from_batches(batches).column("n").to_pylist() == list(range(1_000))
    left = connected.select_batches(question)
    next(left)
    left.close()
    assert list(left) == []
    empty = connected.select_batches("SELECT room, n FROM readings WHERE n < 0")
    assert empty.schema.names == ["room", "n"] and list(empty) == []
    with pytest.raises(PenstockError, match="unknown column roam"):
        connected.select_batches("SELECT roam FROM readings")


def test_every_format_is_written_in_pieces(
    connected: ServerClient,
    server: Running,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = thousand(connected, monkeypatch, 2**20)
    with server.client(AccessRole.READ) as client:
        for media in ("application/json", "application/x-ndjson", "text/csv"):
            answers = []
            for piece in (2**20, 1_000):
                monkeypatch.setattr("penstock.server.http.formats._PIECE_BYTES", piece)
                answers.append(client.post("/v1/statements", json={"sql": question}, headers={"Accept": media}))
            whole, parts = answers
            assert "content-length" in whole.headers and "content-length" not in parts.headers
            assert whole.content == parts.content and whole.headers["content-type"] == parts.headers["content-type"]
            assert whole.content.count(b"hall") == 1_000


class Breaking(BaseHTTPRequestHandler):
    """Answers a SELECT with a batch; the connection breaks off after it, where `lost` has something left."""

    lost: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, pa.schema([("n", pa.int64())])) as writer:
            writer.write_batch(pa.RecordBatch.from_pydict({"n": pa.array([1], pa.int64())}))
        missing = len(self.lost) and self.lost.pop()
        self.send_response(200)
        self.send_header("Content-Length", str(len(sink.getvalue()) + missing))
        self.end_headers()
        self.wfile.write(sink.getvalue()[: -8 if missing else None])

    def log_message(self, format: str, *given: object) -> None:  # noqa: A002 - the parameter's name
        """Write nothing."""


def test_a_connection_that_is_lost_in_an_answer() -> None:
    """`select` asks again, `select_batches` has given rows away."""
    with HTTPServer(("127.0.0.1", 0), Breaking) as answering:
        threading.Thread(target=answering.serve_forever, daemon=True).start()
        with connect(f"http://127.0.0.1:{answering.server_port}", patience=10) as client:
            Breaking.lost[:] = [100]
            assert client.select("SELECT n FROM x").to_arrow().to_pydict() == {"n": [1]} and not Breaking.lost
            Breaking.lost[:] = [100]
            with pytest.raises(PenstockError, match="lost in the midst of an answer: the connection ended") as caught:
                list(client.select_batches("SELECT n FROM x"))
            assert caught.value.code == "P0808" and caught.value.hint == "ask again"
        answering.shutdown()


def test_rows_of_any_kind_lose_nothing() -> None:
    """Keys that the first row lacks, dictionaries of views as Polars has them, labels that pandas keeps of rows."""
    some = arrow_table(iter([{"room": "a"}, {"level": 4, "room": "b"}, {}]))
    assert some.to_pylist() == [{"room": "a", "level": None}, {"room": "b", "level": 4}, {"room": None, "level": None}]
    words = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.uint32()), pa.array(["x", "y"], pa.string_view()))
    plain = arrow_table(pa.table({"word": words, "none": words.slice(0, 3)}))
    assert plain.column("word").to_pylist() == ["y", "x", None]
    assert plain.schema.field("word").type == pa.large_string()
    empty = arrow_table(pa.table({"word": words}).slice(0, 0))
    assert empty.num_rows == 0 and empty.schema.field("word").type == pa.large_string()
    frame = pd.DataFrame({"room": ["a", "b"], "level": [1, 2]})
    assert arrow_table(frame[frame.level > 1]).to_pylist() == [{"room": "b", "level": 2}]
    assert arrow_table(frame.set_index("room")).column_names == ["level", "room"]


class LazyRows:
    """As a LazyFrame of Polars: names of columns, and no rows before `collect`."""

    columns = ("room",)

    def collect(self) -> pa.Table:
        return pa.table({"room": ["a"]})


def test_rows_that_are_not_computed_yet() -> None:
    lazy = LazyRows()
    with pytest.raises(PenstockError, match="LazyRows is a plan, its rows have not been computed") as told:
        arrow_table(lazy)
    assert told.value.hint == "hand over rows.collect()"
    assert arrow_table(lazy.collect()).num_rows == 1


def test_pandas_keeps_the_digits_of_large_numbers() -> None:
    large, small = pa.array([2**63 - 1, None]), pa.array([1, None], pa.int64())
    frame = RemoteRows(pa.Table.from_arrays([large, small, large], names=["n", "m", "n"])).to_pandas()
    assert [str(one) for one in frame.dtypes] == ["Int64", "float64", "Int64"]
    assert frame.iloc[0, 0] == 2**63 - 1 and frame.iloc[0, 2] == 2**63 - 1


def test_a_client_that_has_been_closed_says_so(connected: ServerClient) -> None:
    connected.close()
    for action in (connected.queries, lambda: next(connected.events())):
        with pytest.raises(PenstockError, match="P0808: this client has been closed"):
            action()


def test_polars_frames(connected: ServerClient) -> None:
    found = connected.select("SELECT room FROM readings")
    try:
        import polars
    except ImportError:
        with pytest.raises(PenstockError, match="P0809"):
            found.to_polars()
    else:
        assert isinstance(found.to_polars(), polars.DataFrame)


def test_errors_have_code_place_and_hint(connected: ServerClient) -> None:
    with pytest.raises(PenstockError) as caught:
        connected.execute("SELECT roam FROM readings")
    assert caught.value.code == "P0202" and caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (1, 8)
    assert "room" in (caught.value.hint or "")
    with pytest.raises(ScriptErrors) as several:
        connected.select("SELECT roam FROM readings; SELECT x FROM nowhere")
    assert [error.code for error in several.value.errors] == ["P0202", "P0201"]
    with pytest.raises(PenstockError, match="P0201"):
        connected.query("a/b")
    with pytest.raises(PenstockError, match="P0203"):
        connected.insert("readings", 5)
    with pytest.raises(PenstockError, match="P0803"):
        connected.insert("readings", [{"nothing": 1}])


def test_a_wrong_token_and_a_server_that_is_not_there(server: Running) -> None:  # noqa: F811
    with connect(server.url, "wrong") as client, pytest.raises(PenstockError, match="P0801"):
        client.queries()
    with connect("http://127.0.0.1:9", patience=0.3) as client, pytest.raises(PenstockError, match="P0808"):
        client.queries()
    with pytest.raises(PenstockError, match="P0808"):
        connect("file:///etc", "x")
    elsewhere = connect(server.url + "/nothing", server.texts[AccessRole.READ])
    with elsewhere as client, pytest.raises(PenstockError, match="P0803"):
        client.queries()


def test_a_subscription_yields_batches_and_cursors(connected: ServerClient, fake: FakeService) -> None:  # noqa: F811
    fake.emit("warm", ("+", "hall", 1), ("-", "attic", 2))
    fake.emit("warm", ("+", "hall", 3))
    with connected.subscribe("warm", beginning=True, until_now=True) as rows:
        assert [batch.num_rows for batch in rows] == [2, 1]
        assert rows.cursor == "warm.2"
    assert next(connected.subscribe("warm", cursor="warm.1", until_now=True)).column("n").to_pylist() == [3]
    with pytest.raises(PenstockError, match="P0803"):
        next(connected.subscribe("warm", cursor="nonsense"))


def test_a_subscription_that_nobody_holds_is_closed_in_the_midst_of_a_request(
    connected: ServerClient,
    fake: FakeService,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The collection of garbage comes while the thread has the lock of the connections: it waited for itself."""
    fake.emit("warm", ("+", "hall", 1))
    rows = connected.subscribe("warm", beginning=True)
    assert next(rows).column("n").to_pylist() == [1]
    cycle: list[object] = [rows]
    cycle.append(cycle)
    del rows, cycle
    assign, collected = ConnectionPool._assign_requests_to_connections, []

    def assigning(pool: ConnectionPool) -> object:
        collected.append(gc.collect())
        return assign(pool)

    monkeypatch.setattr(ConnectionPool, "_assign_requests_to_connections", assigning)
    asking = threading.Thread(target=lambda: collected.append(len(connected.queries())), daemon=True)
    asking.start()
    asking.join(20)
    assert not asking.is_alive() and collected[-1] == 1 and max(collected) > 1
    eventually(lambda: fake.open[0].closed)


def test_a_subscription_continues_after_a_lost_connection(fake: FakeService, serve: object) -> None:  # noqa: F811
    """The server is gone and comes back at the same address: every row comes once, also those of the time between."""
    first: Running = serve()  # type: ignore[operator]
    got: list[int] = []
    with connect(first.url, first.texts[AccessRole.READ], patience=30) as client:
        rows = client.subscribe("warm")

        def read() -> None:
            for batch in rows:
                got.extend(batch.column("n").to_pylist())
                if 5 in got:
                    return

        reader = threading.Thread(target=read)
        reader.start()
        eventually(lambda: fake.open)
        first.server.close()
        fake.emit("warm", ("+", "hall", 1))
        again = HttpServer(first.door, Address("127.0.0.1", first.server.address.port))
        first.door.closing.clear()
        eventually(lambda: 1 in got, 20)
        again.close()
        for number in (2, 3, 4):
            fake.emit("warm", ("+", "hall", number))
        last = HttpServer(first.door, Address("127.0.0.1", first.server.address.port))
        first.door.closing.clear()
        eventually(lambda: 4 in got, 20)
        fake.emit("warm", ("+", "hall", 5))
        reader.join(20)
        last.close()
    assert got == [1, 2, 3, 4, 5]


def test_a_script_is_executed_once_though_its_answer_is_lost(serve: object, fake: FakeService) -> None:  # noqa: F811
    """A request is repeated with the key of the first, by which the server knows it."""
    running: Running = serve()  # type: ignore[operator]
    keys: list[str | None] = []
    execute = fake.execute

    def failing(request: object) -> object:
        keys.append(request.key)  # type: ignore[attr-defined]
        if len(keys) == 1:
            fake.busy = 0.0
            from penstock.errors import Busy

            raise Busy("later", 0.1)
        return execute(request)  # type: ignore[arg-type]

    fake.execute = failing  # type: ignore[method-assign,assignment]
    with connect(running.url, running.texts[AccessRole.ADMIN]) as client:
        client.execute("CREATE VIEW v AS SELECT room FROM readings")
    assert len(keys) == 2 and keys[0] == keys[1] is not None


def test_what_takes_another_kind_of_statement_or_name(connected: ServerClient) -> None:
    with pytest.raises(PenstockError, match="no SUBSCRIBE") as followed:
        connected.follow("SELECT room FROM warm")
    assert (followed.value.code, followed.value.hint) == ("P0803", "select(...) has the rows of a SELECT")
    with pytest.raises(PenstockError) as cancelled:
        connected.cancel(99)  # type: ignore[arg-type]  # SHOW STATEMENTS has numbers
    assert cancelled.value.code == "P0201"
