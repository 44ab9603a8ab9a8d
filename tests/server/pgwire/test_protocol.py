"""Messages that no well-kept client sends: half ones, wrong ones, huge ones; logins that fail, and their limits."""

from __future__ import annotations

import random
import shutil
import socket
import struct
import threading
import time
from pathlib import Path

import psycopg
import pytest

from penstock.errors import CODES, PenstockError
from penstock.pgwire.protocol.errors import sqlstate
from penstock.server.listening import Certificate
from penstock.server.roles import AccessRole
from penstock.server.service import Service
from tests.server.pgwire.running import RawClient, RunningPg, made_certificate, problem, running_pg, startup


def test_every_error_has_a_sqlstate() -> None:
    for code in CODES:
        assert len(sqlstate(PenstockError(code, "x"))) == 5


# -- logins ----------------------------------------------------------------------------------------------------


def refused(dsn: str) -> str:
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(dsn)
    return str(caught.value)


def test_a_token_is_the_password_of_its_name(pg: RunningPg) -> None:
    right, wrong = pg.texts[AccessRole.READ], pg.texts[AccessRole.ADMIN]
    with psycopg.connect(pg.dsn(AccessRole.READ)) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("read",)
    message = refused(pg.dsn(AccessRole.READ, password=wrong))
    assert "P0801: the login of read was refused" in message and "FATAL" in message and "penstock token list" in message
    # Nobody learns which names there are.
    unknown = refused(pg.dsn(AccessRole.READ, user="nobody"))
    assert unknown.replace("nobody", "read") == message
    assert "there is no database other" in refused(pg.dsn(dbname="other"))
    assert "there is no setting nope" in refused(pg.dsn(options="'-c nope=1'"))
    assert right not in message


def test_a_revoked_token_lets_nobody_in(service: Service, tmp_path: Path) -> None:
    with running_pg(tmp_path, service) as running:
        assert running.rows("SELECT 1") == [(1,)]
        running.tokens.revoke("admin")
        assert "was refused" in refused(running.dsn())


def test_failed_logins_are_limited_and_known_clients_are_not(service: Service, tmp_path: Path) -> None:
    with running_pg(tmp_path, service) as running:
        assert running.rows("SELECT 1") == [(1,)]
        for _ in range(10):
            assert "was refused" in refused(running.dsn(password="wrong"))
        assert "too many failed attempts" in refused(running.dsn(AccessRole.READ))
        assert running.rows("SELECT 1") == [(1,)]


def test_the_number_of_connections_is_limited(service: Service, tmp_path: Path) -> None:
    with running_pg(tmp_path, service, max_connections="2") as running:
        with running.connect(), running.connect():
            assert "max_connections" in refused(running.dsn())
        end = time.monotonic() + 10
        while running.door.connections and time.monotonic() < end:
            time.sleep(0.01)
        assert running.rows("SELECT 1") == [(1,)]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_tls(service: Service, tmp_path: Path) -> None:
    chain, key = made_certificate(tmp_path)
    with running_pg(tmp_path, service, Certificate(chain, key)) as running:
        with psycopg.connect(running.dsn(sslmode="verify-full", sslrootcert=chain)) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert connection.pgconn.ssl_in_use
        plain = refused(running.dsn(sslmode="disable"))
        assert "requires TLS" in plain and "HINT:  connect with sslmode=require" in plain
        # What comes in the clear behind the request for TLS is not read as if it had come through it.
        with RawClient(running.port, begin=False) as client:
            client.socket.sendall(struct.pack("!II", 8, 80_877_103) + startup(user="admin"))
            assert client.socket.recv(1) == b"S"
            client.socket.settimeout(0.5)
            with pytest.raises(TimeoutError):
                client.socket.recv(1)


def test_tls_is_declined_where_there_is_none(pg: RunningPg) -> None:
    """The client says so: there is no message in which a server could before TLS."""
    for mode in ("require", "verify-full"):
        assert "server does not support SSL, but SSL was required" in refused(pg.dsn(sslmode=mode))
    assert pg.rows("SELECT 1") == [(1,)]


def test_a_server_that_ends_tells_its_clients(service: Service, tmp_path: Path) -> None:
    with running_pg(tmp_path, service, auth=False) as running:
        client = RawClient(running.port)
        client.send("Q", b"SUBSCRIBE TO warm\0")
        assert client.until("T")[-1][0] == "T"
        thread = threading.Thread(target=running.server.close)
        thread.start()
        assert problem(client.until("E"))["C"] == "57P01"
        thread.join(20)
        assert not thread.is_alive()


# -- messages --------------------------------------------------------------------------------------------------


def test_old_and_new_versions_of_the_protocol(open_pg: RunningPg) -> None:
    with RawClient(open_pg.port, begin=False) as client:
        client.socket.sendall(startup(version=2 << 16, user="test"))
        assert problem(client.until("E"))["C"] == "0A000"
    with RawClient(open_pg.port, begin=False) as client:
        client.socket.sendall(startup(version=(3 << 16) + 2, user="test", **{"_pq_.x": "1"}))
        found = client.until("Z")
        assert found[0] == ("v", struct.pack("!II", 0, 1) + b"_pq_.x\0") and found[-1] == ("Z", b"I")


@pytest.mark.parametrize(
    "first",
    [b"\0\0\0\4\0\0\0\0", b"\xff\xff\xff\xff\0\3\0\0", b"GET / HTTP/1.1\r\n\r\n", startup(), b"\0\0\0\x09\0\3\0\0x"],
)
def test_a_first_message_that_is_none(open_pg: RunningPg, first: bytes) -> None:
    with RawClient(open_pg.port, begin=False) as client:
        client.socket.sendall(first)
        assert problem(client.until("E"))["C"] in ("08P01", "28000")
        assert client._exactly(1) == b""


def test_an_error_skips_up_to_sync(raw: RawClient) -> None:
    for statement, kinds, state in (("SELECT nothing_such(1)", "EZ", "42883"), ("SELECT 1 / 0", "12EZ", "22012")):
        raw.send("P", b"\0" + statement.encode() + b"\0\0\0")
        raw.send("B", b"\0\0\0\0\0\0\0\0")
        raw.send("D", b"P\0")
        raw.send("E", b"\0\0\0\0\0")
        raw.send("P", b"\0SELECT 2\0\0\0")
        raw.send("S")
        found = raw.until("Z")
        assert "".join(kind for kind, _ in found) == kinds and problem(found)["C"] == state
    assert ("D", b"\0\1\0\0\0\1" + b"1") in raw.query("SELECT 1")


def test_a_fault_of_the_server_has_a_reference_into_its_log(
    raw: RawClient, service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*rest: object) -> None:
        raise RuntimeError("the password is hunter2")

    with monkeypatch.context() as patch:
        patch.setattr(service, "execute", broken)
        answer = raw.query("SHOW QUERIES")
    (error,) = (body.decode() for kind, body in answer if kind == "E")
    assert "XX000" in error and "hunter2" not in error and "Traceback" not in error
    reference = error.partition("(reference ")[2].partition(")")[0]
    assert reference and any(reference in record.getMessage() and record.exc_info for record in caplog.records)
    assert raw.query("SHOW QUERIES")[-1][0] == "Z"


def test_portals_give_as_many_rows_as_are_asked_for(raw: RawClient) -> None:
    raw.send("P", b"s\0SELECT * FROM generate_series(1, 5)\0\0\0")
    raw.send("B", b"p\0s\0\0\0\0\0\0\0")
    for most in (2, 2, 2):
        raw.send("E", b"p\0" + struct.pack("!I", most))
    raw.send("E", b"p\0\0\0\0\0")
    raw.send("C", b"Pp\0")
    raw.send("S")
    kinds = "".join(kind for kind, _ in raw.until("Z"))
    assert kinds == "12DDsDDsDCC3Z"


@pytest.mark.parametrize(
    ("kind", "body", "state"),
    [("B", b"\0nothing\0\0\0\0\0\0\0", "26000"), ("E", b"nothing\0\0\0\0\0", "34000"), ("P", b"\0SELECT 1", "08P01"),
     ("P", b"\0SELECT '\xff'\0\0\0", "22021"), ("P", b"\0SELECT $1\0\0\1\0\0\xff\xff", "42704"),
     ("P", b"\0SELECT 1; SELECT 2\0\0\0", "42601"), ("P", b"\0SELECT $99999\0\0\0", "08P01"),
     ("D", b"Zx\0", "08P01"), ("C", b"Zx\0", "08P01"), ("D", b"Snothing\0", "26000"),
     ("P", b"\0SELECT $0\0\0\0", "42P02"),
     ("B", b"\0\0\xff\xff\0\0", "26000"), ("F", b"\0\0\0\0", "0A000"), ("Q", b"SELECT 'open\0", "42601")],
)  # fmt: skip
def test_a_message_that_cannot_be_carried_out(raw: RawClient, kind: str, body: bytes, state: str) -> None:
    raw.send(kind, body)
    if kind != "Q":
        raw.send("S")
    assert problem(raw.until("Z"))["C"] == state
    assert raw.query("SELECT 1")[-1] == ("Z", b"I")


PAIRS = range(1, 20_001, 2)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT room FROM rooms WHERE level IN (" + ", ".join(f"${n}, ${n + 1}" for n in PAIRS) + ")",
        "INSERT INTO notes (room, note) VALUES " + ", ".join(f"(${n}, ${n + 1})" for n in PAIRS),
        "SELECT room FROM rooms WHERE " + " OR ".join(f"level BETWEEN ${n} AND ${n + 1}" for n in PAIRS),
        "SELECT $1::" + "x." * 3_000 + "x",
    ],
    ids=["IN", "INSERT", "BETWEEN", "a type"],
)
def test_types_of_many_values_are_found_in_a_moment(raw: RawClient, statement: str) -> None:
    """They are looked for in the loop that serves all connections."""
    began = time.process_time()
    raw.send("P", b"\0" + statement.encode() + b"\0\0\0")
    raw.send("S")
    kinds = [kind for kind, _ in raw.until("Z")]
    # Where each value is looked for in the whole statement, it takes minutes.
    assert kinds in (["1", "Z"], ["E", "Z"]) and time.process_time() - began < 10
    assert raw.query("SELECT 1")[-1] == ("Z", b"I")


def test_a_huge_message_is_thrown_away_and_the_next_one_is_read(raw: RawClient) -> None:
    raw.send("Q", b"SELECT '" + b"x" * 8_000_000 + b"'\0")
    assert problem(raw.until("Z"))["C"] == "54000"
    raw.send("P", b"\0SELECT $1::text\0\0\0")
    raw.send("B", b"\0\0\0\0\0\1" + struct.pack("!I", 30_000_000) + b"y" * 30_000_000 + b"\0\0")
    raw.send("S")
    assert problem(raw.until("Z"))["C"] == "54000"
    assert raw.query("SELECT 1")[-1] == ("Z", b"I")
    raw.send("Q", b"SELECT length('" + b"x" * 500_000 + b"')\0")
    assert ("D", b"\0\1\0\0\0\x06" + b"500000") in raw.until("Z")


def test_a_client_that_does_not_read_holds_little_memory(open_pg: RunningPg) -> None:
    with RawClient(open_pg.port) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.send("Q", b"SELECT i, 'some text that is not short at all' FROM generate_series(1, 90000) i\0")
        time.sleep(0.5)
        connection = list(open_pg.door.connections.values())[-1]
        assert connection._writer.transport.get_write_buffer_size() < 1 << 20  # type: ignore[attr-defined]
        client.until("T")
        assert [kind for _ in range(100) for kind, _ in client.until("D")] == ["D"] * 100


def test_a_client_that_leaves_ends_its_subscription(open_pg: RunningPg) -> None:
    client = RawClient(open_pg.port)
    client.send("Q", b"SUBSCRIBE TO warm\0")
    client.until("T")
    assert open_pg.door.subscriptions == 1
    client.close()
    end = time.monotonic() + 20
    while open_pg.door.subscriptions and time.monotonic() < end:
        time.sleep(0.02)
    assert open_pg.door.subscriptions == 0


def test_a_client_that_has_left_before_its_subscription_begins(open_pg: RunningPg) -> None:
    """It went on for ever: what had ended was the statement before."""
    connections = len(open_pg.door.connections)
    for _ in range(5):
        with RawClient(open_pg.port) as client:
            statements = [b"SELECT room FROM rooms", b"SUBSCRIBE TO warm"]
            client.socket.sendall(b"".join(b"Q" + struct.pack("!I", len(one) + 5) + one + b"\0" for one in statements))
    end = time.monotonic() + 20
    while (open_pg.door.subscriptions or len(open_pg.door.connections) > connections) and time.monotonic() < end:
        time.sleep(0.02)
    assert open_pg.door.subscriptions == 0 and len(open_pg.door.connections) <= connections


def test_a_wrong_secret_cancels_nothing(raw: RawClient, open_pg: RunningPg) -> None:
    number, connection = list(open_pg.door.connections.items())[-1]
    raw.send("Q", b"SUBSCRIBE TO warm\0")
    raw.until("T")
    for secret, ends in ((connection.secret ^ 1, False), (connection.secret, True)):
        with RawClient(open_pg.port, begin=False) as other:
            other.socket.sendall(struct.pack("!IIII", 16, 80_877_102, number, secret))
            assert other._exactly(1) == b""
        raw.socket.settimeout(20 if ends else 0.3)
        if ends:
            assert problem(raw.until("Z"))["C"] == "57014"
        else:
            with pytest.raises(TimeoutError):
                raw.socket.recv(1)


def test_fuzzed_messages(open_pg: RunningPg) -> None:
    """Whatever comes, the door answers or ends the connection, and goes on for others."""
    draw = random.Random(7)
    texts = [b"SELECT 1", b"SELECT $1", b"FETCH ALL FROM c", b"BEGIN", b"COPY (SELECT 1) TO STDOUT", b"SHOW all",
             b"SELECT * FROM pg_class", b"DECLARE c CURSOR FOR SELECT 1", b"SET x TO", b"\xff\xfe", b""]  # fmt: skip
    for _ in range(60):
        with RawClient(open_pg.port, begin=draw.random() < 0.9) as client:
            for _ in range(draw.randrange(1, 8)):
                kind = draw.choice("QPBDECSHFXdcfpz\0")
                body = draw.choice([
                    draw.choice(texts) + b"\0", b"\0" + draw.choice(texts) + b"\0\0\0",
                    draw.randbytes(draw.randrange(40)), b"\0\0\0\1\0\1\0\1" + draw.randbytes(8) + b"\0\0",
                    b"S\0", b"P\0",
                ])  # fmt: skip
                length = len(body) + 4 if draw.random() < 0.95 else draw.randrange(1 << 32)
                try:
                    client.socket.sendall(kind.encode() + struct.pack("!I", length) + body)
                except OSError:
                    break
    assert open_pg.rows_without_token() == [(1,)]
