"""`POST /v1/streams/{s}/rows`: formats, malformed records, limits, and bodies that an attacker would send."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from decimal import Decimal

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.algebra.nodes.scans import Source
from penstock.control.registry import command_of
from penstock.errors import PenstockError
from penstock.language.catalog import Catalog
from penstock.language.commands import CreateSourceCommand
from penstock.server.http.bodies import posted_rows
from penstock.server.http.formats import BodyFormat
from penstock.server.http.gate import decompressed
from penstock.server.http.problems import Refused
from penstock.server.roles import AccessRole
from penstock.settings import Settings
from tests.server.fake_service import FakeService
from tests.server.running import Running

PATH = "/v1/streams/readings/rows"
ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"


def stream_of(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def rows() -> pa.Table:
    return pa.table(
        {
            "at": pa.array([0, 60_000_000], pa.timestamp("us", "UTC")),
            "room": ["hall", None],
            "N": pa.array([1, 2], pa.int32()),
            "cost": pa.array([Decimal("1.5"), None], pa.decimal128(5, 2)),
        }
    )


def stored(fake: FakeService) -> list[tuple[object, ...]]:
    return list(fake.session.catalog.memory.get("readings", ()))


def send(client: httpx.Client, content: bytes, type_: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(PATH, content=content, headers={"Content-Type": type_, **named})


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (BodyFormat.CSV, b"at\n01.03.2024\n2024-03-01\n"),
        (BodyFormat.NDJSON, b'{"at": "01.03.2024"}\n{"at": "2024-03-01"}\n'),
    ],
)
def test_timestamps_of_bodies_have_the_format_that_is_declared(form: BodyFormat, body: bytes) -> None:
    script = "CREATE STREAM S (at TIMESTAMP) FROM HTTP (timestamp_format 'dd.MM.yyyy') TIMESTAMP BY at;"
    command = command_of(script, Catalog(), Settings())
    assert isinstance(command, CreateSourceCommand)
    found = posted_rows(body, form, command.source, 1000)
    assert [f"{at:%Y-%m-%d}" for at in found.rows["at"].to_pylist()] == ["2024-03-01"]
    assert [one.reason for one in found.malformed] == ["bad timestamp '2024-03-01' in column at"]


def test_each_format_adds_the_same_rows(client: httpx.Client, fake: FakeService) -> None:
    line = b'{"at": "1970-01-01T00:00:00Z", "room": "hall", "n": 9007199254740993, "cost": "1.5"}\n'
    assert send(client, line, NDJSON).json() == {
        "rows": 1,
        "repeated": False,
        "malformed": 0,
        "rejected": [],
        "late": 0,
        "complete_to": None,
    }
    csv = b"at,room,celsius,n,cost,raw\n1970-01-01T00:00:00Z,hall,,9007199254740993,1.5,\n"
    assert send(client, csv, "text/csv").status_code == 200
    table = rows().slice(0, 1).set_column(2, "n", pa.array([9007199254740993]))
    assert send(client, stream_of(table), ARROW).status_code == 200
    assert send(client, gzip.compress(line), NDJSON, Content_Encoding="gzip").status_code == 200
    assert send(client, zlib.compress(line), NDJSON, Content_Encoding="deflate").status_code == 200
    first, *others = stored(fake)
    assert first[3] == 9007199254740993 and first[4] == Decimal("1.5000")
    assert others == [first] * 4


def test_whole_numbers_of_arrow_are_decimals_where_they_fit(client: httpx.Client, fake: FakeService) -> None:
    """Arrow itself refuses all values of a type whose largest one does not fit."""
    whole = rows().set_column(3, "cost", pa.array([12, None], pa.int64()))
    assert send(client, stream_of(whole), ARROW).json()["rows"] == 2
    assert [row[4] for row in stored(fake)] == [Decimal("12.0000"), None]
    answer = send(client, stream_of(rows().set_column(3, "cost", pa.array([2**62, None]))), ARROW)
    assert answer.status_code == 400 and "column cost cannot be cast to DECIMAL" in answer.json()["message"]


def test_malformed_records_are_reported_by_line(client: httpx.Client, fake: FakeService) -> None:
    body = b'{"at": "1970-01-01T00:00:00Z", "n": 1}\n{"at": "x"}\n{"at": "1970-01-01T00:00:01Z", "n": "x"}\nnot json\n'
    answer = send(client, body, NDJSON)
    assert answer.status_code == 207
    document = answer.json()
    assert (document["rows"], document["malformed"]) == (1, 3)
    assert [one["line"] for one in document["rejected"]] == [2, 3, 4]
    assert document["rejected"][2]["record"] == "not json" and len(stored(fake)) == 1


def test_nothing_is_added_where_all_is_malformed_or_fails(client: httpx.Client, fake: FakeService) -> None:
    assert send(client, b"not json\n", NDJSON).status_code == 400
    assert send(client, b"a,b\n1,2\n", "text/csv").status_code == 400
    fake.session.execute("CREATE STREAM strict (t TIMESTAMP) FROM MEMORY () TIMESTAMP BY t ON ERROR FAIL;")
    body = b'{"t": "1970-01-01T00:00:00Z"}\n{"t": 1}\n'
    answer = client.post("/v1/streams/strict/rows", content=body, headers={"Content-Type": NDJSON})
    assert answer.status_code == 400 and "line 2" in answer.json()["message"]
    assert not fake.session.catalog.memory


AT = b'"at": "1970-01-01T00:00:00Z"'
ESCAPED = b'"\\u0072oom": "hall"'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{%b, "rom": "hall"}' % AT, "readings has no column rom; did you mean room?"),
        (b'{"att": "1970-01-01T00:00:00Z", "room": "hall"}', "readings has no column att; did you mean at?"),
        (b'{%b, "room": "hall", "nested": {"room": [1]}}' % AT, "readings has no column nested; known: at, "),
        (b'{%b, "room": "x", "Rooms": "hall"}' % AT, "readings has no column Rooms; did you mean room?"),
        (b'{%b, "": 1}' % AT, "readings has no column without a name; known: at, "),
    ],
)
def test_a_key_that_is_no_column_is_no_silent_null(
    client: httpx.Client, fake: FakeService, line: bytes, reason: str
) -> None:
    """The record is malformed, whatever others there are; alone it is refused."""
    answer = send(client, line + b"\n", NDJSON)
    assert answer.status_code == 400 and answer.json()["code"] == "P0803", answer.json()
    assert answer.json()["message"].startswith(f"no row was added: record in line 1: {reason}"), answer.json()
    assert answer.json()["hint"].startswith("columns: at TIMESTAMP")
    assert not stored(fake)
    good = [b'{%b, "room": "hall"}' % AT, b'{%b, "ROOM": "hall"}' % AT, b"{%b, %b}" % (AT, ESCAPED), b"{%b}" % AT]
    for others in (good[:1], good[1:2], good[2:3], good):
        answer = send(client, b"\n".join([*others, line, *others]), NDJSON)
        assert answer.status_code == 207, answer.json()
        document = answer.json()
        assert (document["rows"], document["malformed"]) == (2 * len(others), 1)
        (rejected,) = document["rejected"]
        assert rejected["line"] == len(others) + 1 and rejected["reason"].startswith(reason)
    rooms = {"hall", None}
    assert {row[1] for row in stored(fake)} == rooms
    answer = client.post(PATH, content=line, headers={"Content-Type": NDJSON}, params={"unknown": "ignore"})
    assert answer.status_code == (200 if b'"at"' in line else 400)


def test_a_column_that_is_none_is_refused_in_each_format(client: httpx.Client, fake: FakeService) -> None:
    csv = b"at,room,celsius,n,cost,raw,cosst\n1970-01-01T00:00:00Z,hall,,1,1.5,,3\n"
    table = rows().append_column("cosst", pa.array([1, 2]))
    for content, type_, count in ((csv, "text/csv", 1), (stream_of(table), ARROW, 2)):
        answer = send(client, content, type_)
        assert answer.status_code == 400 and not stored(fake)
        assert "readings has no column cosst; did you mean cost?" in answer.json()["message"], answer.json()
        answer = client.post(PATH, content=content, headers={"Content-Type": type_}, params={"unknown": "ignore"})
        assert answer.json()["rows"] == count
        fake.session.catalog.memory.clear()
    assert client.post(PATH, content=csv, headers={"Content-Type": "text/csv"}, params={"unknown": "x"}).is_error


def test_a_key_adds_rows_once(client: httpx.Client, fake: FakeService) -> None:
    answers = [send(client, stream_of(rows()), ARROW, Idempotency_Key="k1").json() for _ in range(2)]
    assert [one["repeated"] for one in answers] == [False, True] and answers[1]["rows"] == 2
    assert len(stored(fake)) == 2


def test_too_many_unread_rows(client: httpx.Client, fake: FakeService) -> None:
    fake.busy = 2.5
    answer = send(client, stream_of(rows()), ARROW)
    assert answer.status_code == 429 and answer.headers["retry-after"] == "3"


def test_who_may_post_and_where(server: Running) -> None:
    with server.client(AccessRole.READ) as client:
        assert send(client, b"", NDJSON).status_code == 403
    with server.client(AccessRole.CONTROL) as client:
        assert (
            client.post("/v1/streams/nothing/rows", content=b"{}", headers={"Content-Type": NDJSON}).status_code == 404
        )
        assert send(client, b"{}", "application/json").status_code == 415
        assert send(client, b"{}", NDJSON, Content_Encoding="br").status_code == 415


def test_bodies_are_limited_before_and_after_decompression(serve: Callable[..., Running]) -> None:
    with serve(max_body_bytes="100 kB").client(AccessRole.CONTROL) as client:
        assert send(client, b" " * 200_000, NDJSON).status_code == 413
        bomb = gzip.compress(b" " * 10_000_000)
        assert len(bomb) < 100_000
        answer = send(client, bomb, NDJSON, Content_Encoding="gzip")
        assert answer.status_code == 413 and answer.json()["code"] == "P0804"
        wide = stream_of(pa.table({"at": pa.array(range(12_000), pa.timestamp("us", "UTC"))}))
        assert send(client, wide, ARROW).status_code == 200


@pytest.fixture
def source() -> Source:
    service = FakeService()
    service.session.execute("CREATE STREAM s (at TIMESTAMP, room STRING, n BIGINT) FROM MEMORY () TIMESTAMP BY at;")
    return service.session.catalog.sources["s"]


def test_damaged_compression() -> None:
    packed = gzip.compress(b"x" * 1000)
    assert decompressed(packed, "GZIP", 1000) == b"x" * 1000
    for wrong in (packed[:-4], packed + b"more", b"", b"nonsense", packed[:30] + b"\0" * 10):
        with pytest.raises(Refused, match="P0803"):
            decompressed(wrong, "gzip", 1000)


def test_arrow_that_stands_for_more_than_it_holds_is_refused(source: Source) -> None:
    times = pa.array([0] * 4, pa.timestamp("us", "UTC"))
    texts = pa.array(["a"] * 4)
    wrong = [
        pa.table({"at": times, "room": texts.dictionary_encode()}),
        pa.table({"at": times, "room": texts.cast(pa.string_view())}),
        pa.table({"at": times, "n": pa.RunEndEncodedArray.from_arrays(pa.array([4], pa.int32()), pa.array([1]))}),
        pa.table({"at": times, "n": pa.array([{"a": 1}] * 4)}),
        pa.table({"at": times, "nothing": times}),
        pa.table([times, times], ["at", "AT"]),
        pa.table({"room": texts}),
        pa.table({"at": times, "n": texts}),
        pa.table({"at": times, "n": pa.array([1.5] * 4)}),
    ]
    for table in wrong:
        with pytest.raises(Refused, match="P0803"):
            posted_rows(stream_of(table), BodyFormat.ARROW, source, 10**6)
    for codec in ("lz4", "zstd"):
        packed = stream_of(pa.table({"at": times}), compression=codec)
        with pytest.raises(Refused, match="compressed"):
            posted_rows(packed, BodyFormat.ARROW, source, 10**6)
    with pytest.raises(Refused, match="larger"):
        posted_rows(stream_of(pa.table({"at": times})), BodyFormat.ARROW, source, 10)


@pytest.mark.parametrize("far", [2**62, 2**63 - 1, -(2**63)])
def test_instants_beyond_those_of_python_are_malformed(source: Source, far: int) -> None:
    times = pa.array([0, far], pa.int64()).cast(pa.timestamp("us", "UTC"))
    posted = posted_rows(
        stream_of(pa.table({"at": times, "room": ["a", "é"], "n": [1, 2]})), BodyFormat.ARROW, source, 10**6
    )
    (one,) = posted.malformed
    assert posted.rows.num_rows == 1 and one.line == 2
    assert "timestamp out of range" in one.reason and '"room":"é","n":2}' in str(one.record)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.integers(0, 10_000), form=st.sampled_from([0, 1])
)
def test_damaged_arrow_never_fails_otherwise(source: Source, place: int, value: int, cut: int, form: int) -> None:
    """A byte that is changed, or an end that is missing: rows or a refusal, nothing else."""
    table = pa.table({"at": pa.array([0, 1], pa.timestamp("us", "UTC")), "room": ["hall", "attic"], "n": [1, 2]})
    body = bytearray(stream_of(table))
    if form:
        body[place % len(body)] = value
    else:
        del body[cut % len(body) :]
    try:
        posted = posted_rows(bytes(body), BodyFormat.ARROW, source, 10**6)
    except PenstockError as error:
        assert error.code in ("P0803", "P0804")
    else:
        posted.rows.validate(full=True)


@pytest.mark.parametrize(
    ("content", "type_", "lines"),
    [
        (b'{"room": "a"}\n\n{"at": 0, "room": "b"}\n{"at": null, "n": 3}\n{"at": "x"}\n', NDJSON, [1, 4, 5]),
        (
            b"room,at,celsius,n,cost,raw\na,,,,,\n\nb,1970-01-01T00:00:00Z,,,,\nc,,,,,\nd,never,,,,\n",
            "text/csv",
            [2, 5, 6],
        ),
        (b'room,at,celsius,n,cost,raw\n"a\n",,,,,\nb,1970-01-01T00:00:00Z,,,,\nc,,,,,\n', "text/csv", [None, None]),
    ],
)
def test_rows_without_a_timestamp_are_malformed(
    client: httpx.Client, fake: FakeService, content: bytes, type_: str, lines: list[int | None]
) -> None:
    """They would be dead letters, of which the one who posts them hears nothing."""
    content = content.replace(b'"at": 0', b'"at": "1970-01-01T00:00:00Z"')
    answer = send(client, content, type_)
    document = answer.json()
    assert (answer.status_code, document["rows"], document["malformed"]) == (207, 1, len(lines)), document
    assert [one["line"] for one in document["rejected"]] == lines
    assert "no timestamp (column at)" in document["rejected"][0]["reason"]
    assert [row[1] for row in stored(fake)] == ["b"]


def test_an_arrow_stream_with_a_row_without_a_timestamp(client: httpx.Client, fake: FakeService) -> None:
    table = rows().set_column(0, "at", pa.array([None, 60_000_000], pa.timestamp("us", "UTC")))
    document = send(client, stream_of(table), ARROW).json()
    assert (document["rows"], document["malformed"], document["rejected"][0]["line"]) == (1, 1, 1)
    refused = send(client, stream_of(table.slice(0, 1)), ARROW)
    assert refused.status_code == 400 and "no timestamp" in refused.json()["message"]


@pytest.mark.parametrize(
    ("content", "type_", "said"),
    [
        (b'{"at": 1709283600000, "room": "hall"}', NDJSON, "2024-03-01 09:00:00"),
        (b'{"at": "01.03.2024 09:00", "room": "hall"}', NDJSON, "2024-03-01 09:00:00"),
        (b"at;room;celsius\n2024-03-01 09:00:00;hall;19\n", "text/csv", "between commas"),
        (b"2024-03-01 09:00:00,hall,19\n", "text/csv", "the first line names the columns"),
    ],
)
def test_what_to_do_with_rows_of_another_form(client: httpx.Client, content: bytes, type_: str, said: str) -> None:
    answer = send(client, content, type_)
    assert answer.status_code == 400 and said in answer.json()["hint"], answer.text


@pytest.mark.parametrize(
    ("content", "type_", "said"),
    [
        (b'[{"at": "1970-01-01T00:00:00Z"}]', "application/json", "one object a line"),
        (b"at,room,celsius,n,cost,raw\n1970-01-01T00:00:00Z,caf\xe9,,,,\n", "text/csv", "texts are sent as UTF-8"),
        (b'{"at": "1970-01-01 00:00:00 CET"}\n', NDJSON, "with its offset as '2024-03-01 09:00:00+01:00'"),
        (b'{"at": "1970-01-01T00:00:00Z", "room": 7}\n', NDJSON, "texts stand in double quotes"),
        (gzip.compress(b"{}\n", mtime=0), NDJSON, "`Content-Encoding: gzip`"),
        (b"ARROW1\0\0" + bytes(40), ARROW, "pyarrow.ipc.new_stream writes a stream"),
    ],
)
def test_what_to_do_with_a_body_of_another_kind(client: httpx.Client, content: bytes, type_: str, said: str) -> None:
    assert said in send(client, content, type_).json()["hint"]


def test_a_header_that_ends_with_a_comma(client: httpx.Client) -> None:
    answer = send(client, b"at,room,celsius,n,cost,raw,\n1970-01-01T00:00:00Z,a,,,,,\n", "text/csv")
    assert "has no column without a name" in answer.json()["message"]


def test_whole_numbers_of_arrow_are_no_instants(client: httpx.Client, fake: FakeService) -> None:
    """They would be microseconds, and what is meant is seconds or milliseconds."""
    table = pa.table({"at": [1_709_283_600], "room": ["hall"]})
    answer = send(client, stream_of(table), ARROW)
    assert answer.status_code == 400 and "whole numbers are no TIMESTAMP" in answer.text, answer.text
    assert stored(fake) == []


def test_a_body_that_is_not_compressed(client: httpx.Client) -> None:
    answer = send(client, b'{"room": "hall"}', NDJSON, Content_Encoding="gzip")
    assert "leave Content-Encoding out" in answer.json()["hint"]
