"""Random and changed messages: whatever comes, the door answers or ends the connection, fails in no way that it does
not know itself, serves others meanwhile, and forgets it all."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

from penstock.pgwire import connection as connection_module
from penstock.server import attempts
from penstock.server.service import Service
from tests.server.pgwire.running import RawClient, RunningPg, running_pg, startup

SEED, COUNT = int(os.environ.get("PENSTOCK_SEED", "16")), int(os.environ.get("PENSTOCK_CASES", "250"))
SSL, GSS, CANCEL = 80_877_103, 80_877_104, 80_877_102
KINDS = set("RSKZTDCEINn123tsGHWdcAv")
TEXTS = [
    "SELECT 1", "SELECT $1", "SELECT $1::int8, $2::text", "SELECT * FROM pg_class",
    "SELECT room FROM rooms WHERE level = $1",
    "INSERT INTO notes VALUES ($1, $2)", "COPY notes FROM STDIN", "COPY (SELECT 1) TO STDOUT", "SUBSCRIBE TO warm",
    "DECLARE c CURSOR FOR SELECT 1", "FETCH ALL FROM c", "FETCH 5 FROM c WITH (timeout '1ms')", "CLOSE c", "BEGIN",
    "COMMIT",
    "ROLLBACK", "SAVEPOINT a", "ROLLBACK TO a", "SET x TO", "SET penstock.key = 'k'", "SHOW all", "DISCARD ALL",
    "PREPARE p AS SELECT $1", "EXECUTE p (1)", "DEALLOCATE ALL", "EXPLAIN SELECT 1", "SELECT 1; SELECT nope; SELECT 2",
    "",
    ";", "SELECT '\x00'", "SELECT $65536", "SELECT 1 / 0", "SELECT 'x' FROM generate_series(1, 3000)", "\ufeffSELECT 1",
    "SELECT " + "(" * 800, "SELECT interval '1e99 days', 1e99999", "SELECT E'\\ud800'",
    "WITH RECURSIVE a AS (SELECT 1 UNION"
    " ALL SELECT * FROM a) SELECT * FROM a LIMIT 3", "DROP VIEW nope", "SELECT pg_cancel_backend(1)",
]  # fmt: skip
Draw = random.Random


def text_of(draw: Draw) -> bytes:
    return draw.choice(TEXTS).encode("utf-8", "surrogatepass")


def name_of(draw: Draw) -> bytes:
    return draw.choice([b"", b"", b"s", b"p", b"c", b"\xff", b'"' * 5, b"n" * 70_000, "ä".encode()])


def value_of(draw: Draw) -> bytes:
    value = draw.choice(
        [None, b"", b"1", b"x", b"\0\0\0\5", b"\0" * 8, b"\xff" * 3, b"{1,2}", b"9" * 5_000, b"\0\1\0\0\0\0"]
    )
    return b"\xff\xff\xff\xff" if value is None else struct.pack("!I", len(value)) + value


def count_of(draw: Draw) -> int:
    return draw.choice([0, 0, 1, 1, 2, 2, 3, 65_535, draw.randrange(1 << 16)])


def oid_of(draw: Draw) -> int:
    return draw.choice([0, 16, 17, 20, 23, 25, 701, 1700, 1082, 1184, 1186, 1007, 705, 999_999, 0xFFFFFFFF, 18, 114])


def message(kind: str, body: bytes) -> bytes:
    return kind.encode("latin-1") + struct.pack("!I", len(body) + 4) + body


def well_formed(draw: Draw) -> bytes:
    """A message of the client's, whose content may mean nothing."""
    kind = draw.choice("QQPPPBBBEEEDDCCSSSHFdcfpX")
    if kind == "Q":
        return message(kind, text_of(draw) + b"\0")
    if kind == "P":
        oids = [oid_of(draw) for _ in range(draw.choice([0, 0, 1, 2, 3]))]
        return message(
            kind, name_of(draw) + b"\0" + text_of(draw) + b"\0" + struct.pack(f"!H{len(oids)}I", len(oids), *oids)
        )
    if kind == "B":
        formats = [draw.choice([0, 1, 1, 2, 65_535]) for _ in range(draw.choice([0, 0, 1, 2]))]
        count = draw.choice([0, 1, 1, 2, 2, 3])
        values = b"".join(value_of(draw) for _ in range(count))
        results = [draw.choice([0, 1, 7]) for _ in range(draw.choice([0, 0, 1, 2]))]
        body = name_of(draw) + b"\0" + name_of(draw) + b"\0" + struct.pack(f"!H{len(formats)}H", len(formats), *formats)
        return message(
            kind, body + struct.pack("!H", count) + values + struct.pack(f"!H{len(results)}H", len(results), *results)
        )
    if kind == "E":
        return message(
            kind, name_of(draw) + b"\0" + struct.pack("!i", draw.choice([0, 0, 1, 2, -1, 2**31 - 1, -(2**31)]))
        )
    if kind in "DC":
        return message(kind, draw.choice([b"S", b"P", b"x", b""]) + name_of(draw) + b"\0")
    if kind in "SHXc":
        return message(kind, b"")
    if kind == "F":
        return message(kind, struct.pack("!IHH", oid_of(draw), 0, count_of(draw)) + value_of(draw))
    return message(kind, draw.choice([b"a\tb\n", b"a\n", b"\\.\n", b"", b"\xff\n", draw.randbytes(50), b"x" * 70_000]))


def changed(draw: Draw, data: bytes) -> bytes:
    """Some bytes, with something changed."""
    kind = draw.randrange(7)
    at = draw.randrange(len(data)) if data else 0
    if kind == 0:
        return data[:at] + draw.randbytes(1) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + draw.randbytes(draw.randrange(1, 9)) + data[at:]
    if kind == 3 and len(data) >= 5:
        return data[:1] + struct.pack("!I", draw.choice([0, 3, 4, 5, 2**31 - 1, 2**31, 2**32 - 1, 100_000])) + data[5:]
    if kind == 4:
        return data + data
    if kind == 5:
        return data.replace(b"\0", b"", 1)
    return data[:at] + data[at + 1 :]


def first_bytes(draw: Draw) -> bytes:
    """What comes before a login, or in its place."""
    kind = draw.randrange(8)
    if kind == 0:
        return draw.randbytes(draw.randrange(64))
    if kind == 1:
        return struct.pack("!II", 8, draw.choice([SSL, GSS])) * draw.randrange(1, 5) + startup(user="test")
    if kind == 2:
        return struct.pack("!IIII", 16, CANCEL, draw.randrange(1 << 32), draw.randrange(1 << 32)) + draw.randbytes(8)
    if kind == 3:
        return changed(draw, struct.pack("!II", 8, draw.choice([SSL, GSS, CANCEL])))
    if kind == 4:
        return startup(user="test", **{"x" * draw.choice([1, 9_000, 20_000]): "y" * draw.choice([0, 9_000, 20_000])})
    if kind == 5:
        return startup(draw.choice([0, 1, 2 << 16, (3 << 16) + 9, 4 << 16, 0xFFFFFFFF]), user="test")
    if kind == 6:
        return struct.pack("!I", draw.choice([0, 7, 8, 10_001, 2**31, 2**32 - 1])) + draw.randbytes(40)
    return changed(
        draw, startup(user="test", database=draw.choice(["penstock", "\ud800".encode("utf-8", "replace").decode(), ""]))
    )


def conversation(draw: Draw) -> list[bytes]:
    """All that one client sends, by parts."""
    if draw.random() < 0.25:
        return [first_bytes(draw), *(well_formed(draw) for _ in range(draw.randrange(3)))]
    parts = [startup(user="test")]
    for _ in range(draw.randrange(1, 14)):
        part = (
            well_formed(draw)
            if draw.random() < 0.93
            else message(chr(draw.randrange(256)), draw.randbytes(draw.randrange(30)))
        )
        parts.append(changed(draw, part) if draw.random() < 0.2 else part)
    return parts


def sent(port: int, parts: list[bytes], draw: Draw) -> bytes:
    """Send them, and return what comes until nothing does any more."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as peer, contextlib.suppress(OSError):
        if draw.random() < 0.5:
            peer.sendall(b"".join(parts))
        else:
            for part in parts:
                peer.sendall(part)
        if draw.random() < 0.3:
            peer.shutdown(socket.SHUT_WR)
        if draw.random() < 0.2:
            # It leaves in the middle, with a reset.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return b""
        end = time.monotonic() + 0.15
        while select.select([peer], [], [], max(0.0, min(0.05, end - time.monotonic())))[0]:
            data = peer.recv(1 << 16)
            if not data:
                break
            found += data
    return found


def states(found: bytes) -> list[str]:
    """The SQLSTATEs of what a server has answered, whose messages are all in one piece but for the last."""
    while found[:1] in (b"N", b"S") and (len(found) < 5 or struct.unpack("!I", found[1:5])[0] > 1 << 24):
        found = found[1:]  # the answer to a request for TLS or GSSAPI
    codes = []
    while len(found) >= 5:
        kind, length = chr(found[0]), struct.unpack("!I", found[1:5])[0]
        assert kind in KINDS and 4 <= length < 1 << 24, found[:50]
        if kind == "E" and len(found) > length:
            codes += [part[1:].decode() for part in found[5 : length + 1].split(b"\0") if part[:1] == b"C"]
        found = found[length + 1 :]
    return codes


def wait_until(what: Callable[[], bool], seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.02)
    return what()


def test_random_conversations(open_pg: RunningPg) -> None:
    draw = random.Random(SEED)
    others = len(open_pg.door.connections)
    seen: dict[str, int] = {}
    memory = 0
    with RawClient(open_pg.port) as bystander:
        for number in range(COUNT):
            parts = conversation(draw)
            for code in states(sent(open_pg.port, parts, draw)):
                seen[code] = seen.get(code, 0) + 1
                assert code != "XX000", (number, parts)
            if number % 10 == 0:
                began = time.monotonic()
                assert ("D", b"\0\1\0\0\0\1" + b"7") in bystander.query("SELECT 7")
                assert time.monotonic() - began < 10
            if number == COUNT // 2:
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert wait_until(lambda: len(open_pg.door.connections) <= others and not open_pg.door.subscriptions)
    # Kilobytes. What half of the clients have taken is enough for the other half.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 150_000
    assert sum(seen.values()) > COUNT / 3 and len(seen) > 8, seen


def test_values_of_all_numbers(raw: RawClient) -> None:
    for count, state in ((65_535, None), (32_768, None), (40_000, "08P01")):
        marks = ", ".join(f"${n}" for n in range(1, (count if state is None else 2) + 1))
        raw.send("P", b"\0SELECT 1 WHERE 1 IN (" + marks.encode() + b")\0\0\0")
        raw.send("B", b"\0\0\0\0" + struct.pack("!H", count) + (b"\0\0\0\1" + b"1") * count + b"\0\0")
        raw.send("E", b"\0\0\0\0\0")
        raw.send("S")
        found = raw.until("Z")
        kinds = [kind for kind, _ in found]
        codes = [part[1:] for kind, body in found if kind == "E" for part in body.split(b"\0") if part[:1] == b"C"]
        assert kinds[-1] == "Z" and (codes == [(state or "").encode()] if state else b"XX000" not in codes), (
            count,
            codes,
        )
        assert raw.query("SELECT 1")[-1] == ("Z", b"I")


def test_copy_in_states_where_none_is(raw: RawClient) -> None:
    for kind, body in (("d", b"a\tb\n"), ("c", b""), ("f", b"no\0")):
        raw.send(kind, body)
    assert ("D", b"\0\1\0\0\0\1" + b"1") in raw.query("SELECT 1")
    # A COPY that is refused is followed by lines that were on their way.
    raw.send("Q", b"COPY nothing_such FROM STDIN\0")
    raw.send("d", b"a\tb\n")
    raw.send("c")
    assert [kind for kind, _ in raw.until("Z")] == ["E", "Z"] and raw.query("SELECT 1")[-1] == ("Z", b"I")
    # Another message in the lines ends it; what follows is understood again.
    raw.send("Q", b"COPY notes FROM STDIN\0")
    raw.until("G")
    raw.send("Q", b"SELECT 1\0")
    assert "E" in [kind for kind, _ in raw.until("Z")]
    assert raw.query("SELECT 1")[-1] == ("Z", b"I")


def test_clients_that_send_slowly_and_nothing(service: Service, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Those that have not logged in are bounded in number, and take no place of one that does."""
    with running_pg(tmp_path_factory.mktemp("slow"), service, auth=False, max_connections="20") as running:
        idle = [socket.create_connection(("127.0.0.1", running.port), timeout=20) for _ in range(60)]
        try:
            for one in idle[:30]:
                one.sendall(startup(user="test")[:5])
            began = time.monotonic()
            assert running.rows_without_token() == [(1,)] and time.monotonic() - began < 10
            with RawClient(running.port) as client:
                for byte in message("Q", b"SELECT 5\0"):
                    client.socket.sendall(bytes([byte]))
                assert ("D", b"\0\1\0\0\0\1" + b"5") in client.until("Z")
        finally:
            for one in idle:
                one.close()


def test_clients_that_have_not_logged_in_give_way(
    service: Service, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "OF_ADDRESS", 4)
    monkeypatch.setattr(attempts, "_AT_LEAST", 0.0)
    with running_pg(tmp_path_factory.mktemp("idle"), service, auth=False) as running, RawClient(running.port) as client:
        idle = []
        for _ in range(10):
            idle.append(socket.create_connection(("127.0.0.1", running.port), timeout=20))
            idle[-1].sendall(startup(user="test")[:5])
            time.sleep(0.02)
        for one in idle[:6]:
            assert one.recv(1) == b"", "it was closed"
        for one in idle[6:]:
            one.settimeout(0.1)
            with pytest.raises(TimeoutError):
                one.recv(1)
        assert ("D", b"\0\1\0\0\0\1" + b"5") in client.query("SELECT 5")
        assert running.rows_without_token() == [(1,)]
        for one in idle:
            one.close()


def test_a_login_has_little_time(
    service: Service, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "BEFORE_LOGIN", 0.3)
    with (
        running_pg(tmp_path_factory.mktemp("late"), service) as running,
        socket.create_connection(("127.0.0.1", running.port), timeout=20) as peer,
    ):
        peer.sendall(startup(user="test")[:5])
        assert b"the login took longer than 0.3 seconds" in peer.recv(1 << 16)


def test_five_hundred_clients_at_once(service: Service, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As many as are allowed are served, the others are told or ended, and all places are free again behind them."""
    with running_pg(tmp_path_factory.mktemp("many"), service, auth=False, max_connections="100") as running:
        answers: list[str] = []

        def talk() -> None:
            try:
                with socket.create_connection(("127.0.0.1", running.port), timeout=60) as peer:
                    peer.sendall(startup(user="test") + message("Q", b"SELECT 5\0"))
                    data = b""
                    while part := peer.recv(1 << 16):
                        data += part
                        if data.endswith(b"Z\0\0\0\5I") and b"SELECT 1" in data:
                            break
                answers.append("answered" if b"SELECT 1" in data else "53300" if b"C53300" in data else "ended")
            except OSError:
                answers.append("ended")

        threads = [threading.Thread(target=talk) for _ in range(500)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(120)
        assert len(answers) == 500 and answers.count("answered") >= 100
        assert wait_until(lambda: not running.door.connections)
        assert running.rows_without_token() == [(1,)]
