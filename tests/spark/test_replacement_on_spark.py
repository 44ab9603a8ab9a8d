"""A server on Spark whose query is replaced beside the one that answers, also with rows that are still to come, and
which is killed meanwhile."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from test_ports import LOOPBACK, family, listening, sockets

from benchmarks.live_soak.served import Served
from penstock.client import ServerClient, connect
from penstock.errors import PenstockError

SUM = "SELECT SUM(v) AS s FROM S [RANGE 2 SECONDS]"
WIDE = "SELECT SUM(v) AS s FROM S [RANGE 6 SECONDS]"
#: The sums at an instant, of which each has one row with its number.
SUM_AT, WIDE_AT = (lambda ts: 2 * ts - 1), (lambda ts: 6 * ts - 15)
LAST = 20


def post(client: ServerClient, first: int, last: int) -> None:
    """Post a row for each instant, once however often it is asked."""
    ticks = pa.array(range(first, last + 1))
    client.insert("S", pa.table({"ts": ticks, "v": ticks}), key=f"rows {first}")


def wait(client: ServerClient, instant: int) -> None:
    end = time.monotonic() + 200
    while (client.query("q").instant or "-1") != str(instant):
        assert time.monotonic() < end, client.query("q")
        time.sleep(0.1)


def begin(client: ServerClient) -> None:
    """Have a query over two seconds, and its answers up to the ninth."""
    client.execute(
        f"CREATE STREAM S (ts BIGINT, v BIGINT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;CREATE QUERY q AS {SUM};"
    )
    post(client, 1, 10)
    wait(client, 9)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_query_is_replaced_beside_the_former_one_over_kills(served: Served, tmp_path: Path) -> None:
    served.start()
    with connect(served.url, served.token, patience=120) as client:
        begin(client)
        if sys.platform == "linux":
            # What a server and its run listen on is reached from this machine alone.
            found = listening(set().union(*map(sockets, family(served.pid))))
            assert len(found) > 2 and set(found) <= LOOPBACK, found
        client.execute(f"ALTER QUERY q AS {WIDE} START WARM WAIT")
        served.kill()
        served.start()
        assert client.query("q").state == "RUNNING"
        post(client, 11, 13)
        wait(client, 12)
        (tmp_path / "point").write_text("mark")
        with connect(served.url, served.token, patience=0) as other:
            try:
                post(other, 14, 17)
            except PenstockError as error:
                assert error.code == "P0808"
        assert served.ended() == -signal.SIGKILL, "the new query takes the place of the former one"
        (tmp_path / "point").unlink()
        served.start()
        post(client, 14, 17)
        post(client, 18, LAST)
        wait(client, LAST - 1)
        shown: dict[int, int] = {}
        for batch in client.subscribe("q", beginning=True, until_now=True):
            for row in batch.to_pylist():
                ts, s = row["ts"], row["s"]
                if row["op"] == "+":
                    assert ts not in shown, "an instant is answered once"
                    shown[ts] = s
                else:
                    assert s == shown[max(t for t in shown if t < ts)]
        assert list(shown) == list(range(1, LAST))
        taken = max(ts for ts in shown if shown[ts] == SUM_AT(ts))
        assert 13 <= taken <= 16
        assert list(shown.values()) == [SUM_AT(ts) if ts <= taken else WIDE_AT(ts) for ts in shown]
    served.end()


ROWS = "SELECT SUM(v) AS s FROM S [ROWS 5]"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_query_is_replaced_with_rows_that_are_still_to_come_over_kills(served: Served, tmp_path: Path) -> None:
    served.start()
    with connect(served.url, served.token, patience=120) as client:
        begin(client)
        client.execute(f"ALTER QUERY q AS {ROWS} START WARM WAIT")
        assert client.query("q").change == "another query takes over from q with 5 more rows of S"
        served.kill()
        served.start()
        post(client, 11, 12)
        wait(client, 11)
        found = client.query("q")
        assert (found.state, found.change) == ("RUNNING", "another query takes over from q with 4 more rows of S")
        served.kill()
        served.start()
        post(client, 13, 15)
        post(client, 16, LAST)
        wait(client, LAST - 1)
        end = time.monotonic() + 100
        while client.query("q").change is not None and "has taken over" not in str(client.query("q").change):
            assert time.monotonic() < end, client.query("q")
            time.sleep(0.1)
        served.kill()
        served.start()
        post(client, LAST + 1, LAST + 3)
        wait(client, LAST + 2)
        shown = {}
        for batch in client.subscribe("q", beginning=True, until_now=True):
            for row in batch.to_pylist():
                if row["op"] == "+":
                    assert row["ts"] not in shown, "an instant is answered once"
                    shown[row["ts"]] = row["s"]
        assert list(shown) == list(range(1, LAST + 3))
        taken = max(ts for ts in shown if shown[ts] == SUM_AT(ts))
        assert 15 <= taken <= LAST - 1
        assert all(shown[ts] == 5 * ts - 10 for ts in shown if ts > taken)
        assert all(shown[ts] == SUM_AT(ts) for ts in shown if ts <= taken)
        assert client.query("q").change is None
    served.end()
