"""The Python client offers what the server does, and says what is wrong where a server cannot be used."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from penstock.client import ServerClient, connect
from penstock.client.answers import rows_of
from penstock.errors import PenstockError
from penstock.server.roles import AccessRole
from penstock.server.service import StatementReply
from tests.server.conftest import fake, serve, server  # noqa: F401 - fixtures
from tests.server.fake_service import FakeService, eventually
from tests.server.running import Running


@pytest.fixture
def connected(server: Running) -> Iterator[ServerClient]:  # noqa: F811
    with connect(server.url, server.texts[AccessRole.ADMIN], patience=10) as made:
        yield made


def test_what_there_is(connected: ServerClient, fake: FakeService) -> None:  # noqa: F811
    connected.execute("CREATE VIEW v AS SELECT room, n AS `odd ``name` FROM readings")
    catalog = connected.catalog()
    assert [(one.name, one.kind, one.connector) for one in catalog.sources] == [("readings", "stream", "MEMORY")]
    assert catalog.views[0].columns == (("room", "STRING"), ("odd `name", "BIGINT"))
    assert [one.name for one in catalog.queries] == ["warm"] and catalog.functions == ()
    assert "readings" in connected.plan("warm") and connected.plan("warm", "json").startswith("{")
    assert connected.metrics().startswith("# TYPE penstock_batches_total")
    assert connected.health().ready and connected.health().batch == 7
    fake.problem = "no batch for 70 seconds"
    assert (connected.health().ready, connected.health().problem) == (False, "no batch for 70 seconds")


def test_commands_by_methods(connected: ServerClient, fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    texts: list[str] = []

    def execute(request: object) -> object:
        texts.append(request.script.source.text)  # type: ignore[attr-defined]
        from penstock.server.service import ScriptReply

        error = PenstockError("P0703", "not kept") if "RESET" in texts[-1] else None
        return ScriptReply((StatementReply("ALTER QUERY", "FAILED" if error else "RUNNING", 1, error=error),))

    monkeypatch.setattr(fake, "execute", execute)
    connected.pause("a `b")
    connected.pause("q", with_state=True)
    connected.resume("q", start="AT '2024-03-01 09:00:00'")
    connected.rename("q", "r;DROP")
    connected.drop("q", cascade=True)
    with pytest.raises(PenstockError, match="P0703"):
        connected.resume("q", reset=True)
    assert texts == [
        "ALTER QUERY `a ``b` PAUSE",
        "ALTER QUERY `q` PAUSE WITH STATE",
        "ALTER QUERY `q` RESUME START AT '2024-03-01 09:00:00'",
        "ALTER QUERY `q` RENAME TO `r;DROP`",
        "DROP QUERY `q` CASCADE",
        "ALTER QUERY `q` RESUME RESET",
    ]


def test_records_are_posted_as_they_are(connected: ServerClient) -> None:
    body = b"at,room,celsius,n,cost,raw\n2024-03-01 09:00:00,hall,1,1,1,\nyesterday,attic,1,1,1,\n"
    posted = connected.post("readings", body, "csv", key="k")
    assert (posted.rows, posted.repeated, posted.malformed) == (1, False, 1)
    ((line, record, reason),) = posted.rejected
    assert line == 3 and "attic" in record and "bad timestamp" in reason
    assert connected.post("readings", body, "csv", key="k").repeated
    assert connected.post("readings", b'{"at": "2024-03-01 09:00:00"}\n', "ndjson").rows == 1
    for form, code in (("xml", "P0803"), ("arrow", "P0803")):
        with pytest.raises(PenstockError, match=code):
            connected.post("readings", b"<rows/>", form)
    with pytest.raises(PenstockError, match="P0203"):
        connected.insert("readings", [{"at": 1}, {"at": "text"}])


def test_warnings_and_columns_of_a_script(connected: ServerClient) -> None:
    script = connected.execute("SELECT room, n FROM readings; CREATE QUERY u AS SELECT COUNT(*) AS n FROM readings")
    assert script[0].columns == (("room", "STRING"), ("n", "BIGINT")) and script[0].rows == []
    assert all(warning.position.line == 1 for warning in script.warnings)
    with pytest.raises(PenstockError, match="P0104"):
        connected.select("SELECT room FROM readings", settings={"no_such_setting": "1"})


def test_what_has_no_rows_is_refused_before_it_is_executed(connected: ServerClient, fake: FakeService) -> None:  # noqa: F811
    view = "CREATE VIEW v AS SELECT room FROM readings"
    for script in (view, f"{view}; SELECT room FROM readings", "SELECT room FROM readings; SELECT n FROM readings"):
        with pytest.raises(PenstockError, match="nothing of it was executed") as caught:
            connected.select(script)
        assert caught.value.code == "P0803"
    with pytest.raises(PenstockError, match="P0101"):
        connected.select("SELEC room FROM readings")
    assert connected.catalog().views == () and not list(connected.commands())


def test_a_token_as_it_is_read_from_its_file(server: Running, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "ada.token").write_text(server.texts[AccessRole.READ] + "\n")
    with connect(server.url, (tmp_path / "ada.token").read_text()) as client:
        assert client.query("warm").name == "warm"
    with pytest.raises(PenstockError, match="other characters than a token has") as caught:
        connect(server.url, f"{server.texts[AccessRole.READ]}\n{server.texts[AccessRole.READ]}")
    assert caught.value.hint == "hand over the text that `penstock token add` has printed"
    for path in (tmp_path / "ada.token", b"token"):
        with pytest.raises(PenstockError, match="the token is a"):
            connect(server.url, path)  # type: ignore[arg-type]


def test_rows_that_are_no_dictionaries(connected: ServerClient) -> None:
    for rows in ({"at": "2024-03-01 09:00:00", "room": "x"}, [("2024-03-01 09:00:00", "x")], ["ab"], [1]):
        with pytest.raises(PenstockError, match="P0203: these values cannot be posted as rows") as caught:
            connected.insert("readings", rows)
        assert "dictionary update" not in caught.value.message
        assert caught.value.hint == "a row is a dictionary: [{'column': value, ...}, ...]"


def test_events(connected: ServerClient, fake: FakeService) -> None:  # noqa: F811
    got: list[object] = []

    def read() -> None:
        for event in connected.events():
            got.append((event.kind, event.content["number"]))
            if len(got) == 2:
                return

    reader = threading.Thread(target=read)
    reader.start()
    eventually(lambda: fake.listeners)
    fake.announce("batch", number=3)
    fake.announce("command", number=4)
    reader.join(20)
    assert got == [("batch", 3), ("command", 4)]


def test_a_subscription_is_closed_by_another_thread(connected: ServerClient, fake: FakeService) -> None:  # noqa: F811
    fake.emit("warm", ("+", "hall", 1))
    rows = connected.subscribe("warm", beginning=True)
    got: list[pa.RecordBatch] = []
    reader = threading.Thread(target=lambda: got.extend(rows))
    reader.start()
    eventually(lambda: got)
    rows.close()
    reader.join(20)
    assert not reader.is_alive() and len(got) == 1 and list(rows) == []
    eventually(lambda: fake.open[0].closed)


def test_a_lost_server_is_told_while_it_is_tried_again(serve: object, fake: FakeService) -> None:  # noqa: F811
    running: Running = serve()  # type: ignore[operator]
    reasons: list[Exception] = []
    with connect(running.url, running.texts[AccessRole.READ], patience=60) as client:
        rows = client.subscribe("warm", until_now=False, patience=0.5, on_lost=reasons.append)
        fake.emit("warm", ("+", "hall", 1))
        running.server.close()
        with pytest.raises(PenstockError, match="P0808"):
            next(rows)
    assert reasons


def test_an_error_of_a_query_is_not_tried_again(connected: ServerClient, fake: FakeService) -> None:  # noqa: F811
    calls: list[object] = []

    def fails(request: object) -> object:
        calls.append(request)
        raise PenstockError("P0621", "the function failed")

    fake.execute = fails  # type: ignore[method-assign,assignment]
    with pytest.raises(PenstockError, match="P0621"):
        connected.select("SELECT room FROM readings")
    assert len(calls) == 1


@pytest.fixture
def mute() -> Iterator[socket.socket]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def problem(url: str, token: str | None = None, **options: float) -> PenstockError:
    with connect(url, token, **options) as client, pytest.raises(PenstockError) as caught:  # type: ignore[arg-type]
        client.queries()
    return caught.value


def test_mistakes_are_told_apart(server: Running, mute: socket.socket) -> None:  # noqa: F811
    begun = time.monotonic()
    tls = problem(server.url.replace("http:", "https:"), "t", patience=60)
    assert tls.code == "P0808" and "does not speak TLS" in tls.message and f"write {server.url}" in str(tls.hint)
    assert time.monotonic() - begun < 30
    down = problem("http://127.0.0.1:9", patience=0.1)
    assert down.code == "P0808" and "penstock serve" in str(down.hint)
    late = problem(f"http://127.0.0.1:{mute.getsockname()[1]}", patience=0.1, timeout=0.2)
    assert late.code == "P0808" and "in time" in late.message
    begun = time.monotonic()
    assert "in time" in problem(f"http://127.0.0.1:{mute.getsockname()[1]}", patience=60, timeout=0.2).message
    assert time.monotonic() - begun < 30  # what does not answer in time is not asked again
    for timeout in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(PenstockError, match="is no number of seconds"):
            connect(server.url, timeout=timeout)
    for port in (0, 65_536, 99_999):
        with pytest.raises(PenstockError, match=f"{port} is no port") as caught:
            connect(f"http://127.0.0.1:{port}")
        assert caught.value.code == "P0808"
    assert problem(server.url).code == problem(server.url, "pnst_unknown").code == "P0801"
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
    token = server.tokens.add("brief", AccessRole.READ, soon)
    eventually(lambda: dt.datetime.now(dt.UTC) > soon + dt.timedelta(seconds=1))
    assert "expired" in problem(server.url, token).message


def test_calls_that_another_method_is_for(server: Running) -> None:  # noqa: F811
    with connect(server.url, server.texts[AccessRole.ADMIN], patience=0.1) as client:
        calls: tuple[tuple[Callable[[], object], str, str], ...] = (
            (lambda: client.select("SUBSCRIBE TO warm"), "SUBSCRIBE is no SELECT", "follow(...)"),
            (lambda: client.select("CREATE VIEW v AS SELECT 1"), "no single SELECT", "execute(...)"),
            (lambda: client.select_batches("SHOW VIEWS; SHOW QUERIES"), "no single SELECT", "execute(...)"),
            (lambda: client.subscribe("SELECT 1"), "the name of a query", "follow('SUBSCRIBE TO (SELECT ...)')"),
            (lambda: client.post("readings", [{"at": 1}], "ndjson"), "bytes, not list", "insert(...)"),  # type: ignore[arg-type]
        )
        for call, message, hint in calls:
            with pytest.raises(PenstockError, match=message) as caught:
                call()
            assert hint in str(caught.value.hint)


def test_the_name_of_a_file_is_no_token(server: Running, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "ada.token"
    path.write_text(server.texts[AccessRole.READ])
    with pytest.raises(PenstockError, match="the name of a file") as caught:
        connect(server.url, str(path))
    assert f"Path('{path}').read_text()" in str(caught.value.hint)


def test_a_proxy_is_for_other_machines(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with connect(server.url, server.texts[AccessRole.READ], patience=0.1) as client:
        assert client.health().ready
    proxied = problem("http://streams.example.com", "t", patience=0.1)
    assert proxied.code == "P0808" and "refused" in proxied.message.lower()


@pytest.mark.parametrize(
    ("url", "token", "word"),
    [("http://ada:secret@127.0.0.1", None, "a token is given by itself"), ("127.0.0.1:8265", None, "begins with http"),
     ("127.0.0.1:8265", None, "hint: write http://127.0.0.1:8265$"), ("streams", None, "write http://streams:8265$"),
     ("localhost:9000/x", None, "write http://localhost:9000/x$"), ("", None, "write http://127.0.0.1:8265$"),
     ("http://127.0.0.1:8265", "two\nlines", "other characters"), ("http://127.0.0.1:x", None, "cannot be used"),
     ("http://127.0.0.1:8265/v1/", None, "the client adds it")],
)  # fmt: skip
def test_addresses_and_tokens_that_cannot_be_used(url: str, token: str | None, word: str) -> None:
    with pytest.raises(PenstockError) as caught:
        connect(url, token)
    told = caught.value.render()
    assert caught.value.code == "P0808" and "secret" not in told and re.search(word, told)


class Subscribed(BaseHTTPRequestHandler):
    """Answers SUBSCRIBE with one row; the first connection breaks off after it."""

    asked: ClassVar[list[tuple[object, str | None]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((body["sql"], self.headers["Last-Event-ID"]))
        number = len(self.asked)
        schema = pa.schema([("ts", pa.int64()), ("op", pa.string())])
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, schema) as writer:
            batch = pa.RecordBatch.from_pylist([{"ts": number, "op": "+"}], schema)
            writer.write_batch(batch, custom_metadata={"cursor": f"s.{number}"})
            whole = sink.getvalue() if number == 1 else None
        content = sink.getvalue() if whole is None else whole
        self.send_response(200)
        self.send_header("Content-Length", str(len(content) + (number == 1)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *given: object) -> None:  # noqa: A002 - the parameter's name
        """Write nothing."""


def test_a_subscribe_statement_is_continued_and_ends() -> None:
    with HTTPServer(("127.0.0.1", 0), Subscribed) as answering:
        threading.Thread(target=answering.serve_forever, daemon=True).start()
        with connect(f"http://127.0.0.1:{answering.server_port}", patience=10) as client:
            rows = client.follow("SUBSCRIBE TO q UP TO 9", settings={"seed": "1"})
            assert [batch.column("ts").to_pylist() for batch in rows] == [[1], [2]] and rows.cursor == "s.2"
        answering.shutdown()
    assert Subscribed.asked == [("SUBSCRIBE TO q UP TO 9", None), ("SUBSCRIBE TO q UP TO 9", "s.1")]


def test_statements_that_run(connected: ServerClient, fake: FakeService) -> None:  # noqa: F811
    with pytest.raises(PenstockError, match="P0201"):
        next(connected.follow("SUBSCRIBE TO nothing"))
    assert connected.statements() == []
    with connected.follow("SUBSCRIBE TO warm") as rows:
        threading.Timer(0.5, lambda: fake.emit("warm", ("+", "hall", 1))).start()
        assert next(rows).column("n").to_pylist() == [1]
        (running,) = connected.statements()
        assert (running.kind, running.who, running.sql) == ("SUBSCRIBE", "admin", "SUBSCRIBE TO warm")
        assert connected.cancel(running.id) == running
        with pytest.raises(PenstockError, match="P0726"):
            next(rows)
    with pytest.raises(PenstockError, match="P0201"):
        connected.cancel("99")
    headers = {"penstock-staleness": "1.250", "penstock-since": "a%20b=2024-03-01T09:00:00Z, c=5"}
    found = rows_of(pa.table({}), headers)
    assert (found.instant, found.staleness, found.since) == (None, 1.25, {"a b": "2024-03-01T09:00:00Z", "c": "5"})


def test_arguments_that_are_none(server: Running, connected: ServerClient) -> None:  # noqa: F811
    for call in (
        lambda: connected.select(None),  # type: ignore[arg-type]
        lambda: connected.execute(5),  # type: ignore[arg-type]
        lambda: connected.apply(b"SHOW VIEWS"),  # type: ignore[arg-type]
        lambda: next(connected.select_batches(None)),  # type: ignore[arg-type]
    ):
        with pytest.raises(PenstockError, match=r"P0203: a script is a text, not"):
            call()
    with pytest.raises(PenstockError, match="an address is a text, not NoneType"):
        connect(None, "x")  # type: ignore[arg-type]
    with pytest.raises(PenstockError, match="patience='x' is no number of seconds"):
        connect(server.url, "x", patience="x")  # type: ignore[arg-type]
    with pytest.raises(PenstockError) as without, connect(server.url) as made:
        made.queries()
    assert "connect(url, token)" in (without.value.hint or "")


def test_rows_that_come_late_are_told(connected: ServerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.client.answers import RemotePosted

    posted = RemotePosted(rows=2, repeated=False, malformed=0, rejected=(), late=1, complete_to=None, position=None)
    monkeypatch.setattr(connected, "post", lambda *_, **__: posted)
    with pytest.warns(UserWarning, match="1 of 2 rows of readings came late"):
        assert connected.insert("readings", [{"room": "hall"}, {"room": "attic"}]) == 2
