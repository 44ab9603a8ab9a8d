"""Readers over damaged bytes: nothing raises but PenstockError, nothing hangs, and no record depends on another.

A record's verdict is the same alone and among others, and the rows of a file are the same however it is read in pieces.
`PENSTOCK_FUZZ_SEED` and `PENSTOCK_FUZZ_RECORDS` set another seed and budget for the long runs.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from connector_kit import declare, read

from penstock.connectors.formats import lines, packed
from penstock.errors import PenstockError

COLUMNS = "at TIMESTAMP, name STRING, bytes INT, price DECIMAL(8,2), day DATE, ok BOOLEAN, real DOUBLE"
CSV_HEADER = b"at,name,bytes,price,day,ok,real\n"
CSV_GOOD = b"2024-05-01 10:00:00,a,1,1.5,2024-05-01,true,0.5"
JSON_GOOD = (
    b'{"at":"2024-05-01T10:00:00Z","name":"a","bytes":1,"price":1.5,"day":"2024-05-01","ok":true,"real":0.5,'
    b'"more":{"q":[1,2]}}'
)
PIECES = (
    b'"', b'""', b",", b";", b"\\", b"\xff", b"\x00", b"\xef\xbb\xbf", b" ", b"\t", b"{", b"}", b"[", b"]", b":",
    b"null", b"NaN", b"-Infinity", b"1e999", b"-0", b"007", b"9223372036854775808", b"0x1F", b"\xc3",
    b"\xe2\x84\xaa", b"\\u0041", b"\\ud800", b'"NAME":1,', b'"name":"b",', b'"Bytes":2,', b"10000-01-01",
    b"0000-00-00", b"294247-01-10T04:00:54Z", b"\x0b", b"\x1c", b"\xc2\x85", b"true", b"'", b"5'10\"", b'"x\ny"',
    b"\n", b"\r", b"\r\n", b"}{", b"[" * 40, b"99999999.999", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"1_000",
    b"\xd9\xa1", b"//", b"#",
)  # fmt: skip


def budget(quick: int) -> tuple[int, int]:
    """(seed, records): `quick` records of a fixed seed unless the environment says otherwise."""
    seed = os.environ.get("PENSTOCK_FUZZ_SEED", "1")
    return int(seed), int(os.environ.get("PENSTOCK_FUZZ_RECORDS", quick))


def mutated(rng: random.Random, record: bytes, avoid: bytes = b"") -> bytes:
    """`record` with some bytes changed; none of `avoid` comes in."""
    data = bytearray(record)
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            data[at:at] = rng.choice(PIECES)
        elif kind == 1:
            del data[at : at + rng.choice((1, 1, 2, 5, 20))]
        elif kind == 2 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 3 and at < len(data):
            data[at] ^= 0x20
        else:
            data[at:at] = data[at // 2 : at]
    return bytes(b for b in data if b not in avoid)


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Fails what takes longer."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


Verdict = tuple[list[object], list[tuple[int | None, str, str]]]


def verdict(place: Path, data: bytes, columns: str = COLUMNS, **options: str) -> Verdict:
    place.write_bytes(data)
    table, rejected = read(declare(place, columns, **options))
    return as_text(table), [(r.line, r.record, r.reason) for r in rejected]


def as_text(table: pa.Table) -> str:
    """The columns of a table; times as numbers, since Python's end with the year 9999."""
    number = {pa.date32(): pa.int32(), **{pa.timestamp("us", zone): pa.int64() for zone in (None, "UTC")}}
    columns = [column.cast(number.get(column.type, column.type)) for column in table.combine_chunks().columns]
    return str({name: column.to_pylist() for name, column in zip(table.schema.names, columns, strict=True)})


def rows_and_reasons(found: Verdict) -> tuple[object, list[str]]:
    return found[0], [reason for _, _, reason in found[1]]


def joined(parts: list[tuple[pa.Table, list[str]]]) -> tuple[str, list[str]]:
    tables, reasons = zip(*parts, strict=True)
    return as_text(pa.concat_tables(tables)), [r for some in reasons for r in some]


def alone(place: Path, head: bytes, record: bytes, **options: str) -> tuple[pa.Table, list[str]]:
    """What becomes of one record behind `head`, which is one good row or a header."""
    place.write_bytes(head + record + b"\n")
    table, rejected = read(declare(place, COLUMNS, **options))
    return table, [r.reason for r in rejected]


def check_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int, count: int) -> None:
    """Records of a kind: together, in small blocks, and each alone."""
    rng = random.Random(seed)
    place = tmp_path / f"in.{kind}"
    # A quote may join lines of csv: then a line alone is not the record.
    avoid = b'\n\r"' if kind == "csv" else b"\n\r"
    head, good = (CSV_HEADER, CSV_GOOD) if kind == "csv" else (JSON_GOOD + b"\n", JSON_GOOD)
    for _ in range(0, count, 12):
        records = [mutated(rng, good, avoid) for _ in range(12)]
        joiner = rng.choice((b"\n", b"\r\n"))
        with at_most(20):
            whole = verdict(place, head + joiner.join(records) + joiner)
            first = alone(place, head, b"")
            each = [alone(place, head, record) for record in records]
            monkeypatch.setattr(lines, "BLOCK_BYTES", rng.randrange(1, 300))
            cut = verdict(place, head + joiner.join(records) + joiner)
            monkeypatch.undo()
        assert cut == whole, records
        rows = first[0].num_rows
        parts = [first] + [(table.slice(rows), reasons) for table, reasons in each]
        assert joined(parts) == rows_and_reasons(whole), records


def check_csv_of_any_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, count: int) -> None:
    """csv with quotes and line ends anywhere: the same rows however it is read, with any limit of a record."""
    rng = random.Random(seed)
    place = tmp_path / "in.csv"
    columns = "a STRING, b STRING"
    pieces = [b'"', b'"', b'""', b",", b",", b"\n", b"\n", b"\r\n", b"\r", b"x", b"yy", b"\xff", b"\x00", b' "', b'z"']
    for _ in range(0, count, 40):
        text = b"a,b\n" + b"".join(rng.choice(pieces) for _ in range(rng.randrange(120)))
        options = {"max_record_bytes": str(rng.choice((5, 20, 60, 10_000)))}
        with at_most(20):
            whole = verdict(place, text, columns, **options)
            monkeypatch.setattr(lines, "BLOCK_BYTES", rng.randrange(1, 60))
            cut = verdict(place, text, columns, **options)
            monkeypatch.undo()
        assert cut == whole, (text, options)


def parquet_bytes(compression: str) -> bytes:
    out = io.BytesIO()
    pq.write_table(TYPED, out, compression=compression, row_group_size=40, write_page_checksum=True)
    return out.getvalue()


def arrow_bytes(new: Callable[..., pa.ipc.RecordBatchFileWriter]) -> bytes:
    out = io.BytesIO()
    with new(out, TYPED.schema) as writer:
        writer.write_table(TYPED, max_chunksize=30)
    return out.getvalue()


TYPED_COLUMNS = "at TIMESTAMP, name STRING, bytes INT"
TYPED = pa.table(
    {
        "at": pa.array(range(0, 100_000_000, 1_000_000), pa.timestamp("us")),
        "name": [f"n{i}" * (i % 3) for i in range(100)],
        "bytes": pa.array(range(100), pa.int32()),
    }
)
BINARY: dict[str, Callable[[], bytes]] = {
    "in.parquet": lambda: parquet_bytes("snappy"),
    "zstd.parquet": lambda: parquet_bytes("zstd"),
    "in.arrow": lambda: arrow_bytes(pa.ipc.new_file),
    "in.arrows": lambda: arrow_bytes(pa.ipc.new_stream),
    "in.csv.gz": lambda: gzip.compress(TEXT) + gzip.compress(TEXT.partition(b"\n")[2]),
    "in.csv.bz2": lambda: bz2.compress(TEXT),
    "in.csv.xz": lambda: lzma.compress(TEXT),
}
TEXT = b"at,name,bytes\n" + b"".join(b"2024-05-01 10:00:%02d,n%d,%d\n" % (i % 60, i, i) for i in range(200))


def damaged(rng: random.Random, name: str, sound: bytes) -> bytes:
    """`sound` with some bytes changed; of half of the parquet files in the footer, where single bytes matter most."""
    if not name.endswith(".parquet") or rng.random() < 0.5:
        return mutated(rng, sound)
    body = len(sound) - int.from_bytes(sound[-8:-4], "little") - 8
    if rng.random() < 0.3:
        return sound[:body] + mutated(rng, sound[body:])
    data = bytearray(sound)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(body, len(data) - 8)
        data[at] = rng.choice((rng.randrange(256), data[at] ^ (1 << rng.randrange(8)), (data[at] + 1) % 256))
    return bytes(data)


def check_bytes(tmp_path: Path, name: str, seed: int, count: int) -> None:
    """Whole files with damaged bytes: they are read or rejected, and a compressed one is read whole or not at all."""
    rng = random.Random(seed)
    sound, place = BINARY[name](), tmp_path / name
    place.write_bytes(sound)
    expected = read(declare(place, TYPED_COLUMNS, 0))[0]
    for _ in range(count):
        place.write_bytes(damaged(rng, name, sound))
        with at_most(20):
            try:
                table, rejected = read(declare(place, TYPED_COLUMNS, 0))
            except PenstockError:
                continue
        if packed.compression_of(name) and table.num_rows:
            rows = set(map(str, expected.to_pylist()))
            assert not rejected and all(str(row) in rows for row in table.to_pylist())


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_damaged_record_does_not_depend_on_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    check_text(tmp_path, monkeypatch, kind, *budget(180))


def test_csv_reads_the_same_however_it_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_csv_of_any_bytes(tmp_path, monkeypatch, *budget(12_000))


@pytest.mark.parametrize("name", BINARY)
def test_damaged_files_are_read_or_rejected(tmp_path: Path, name: str) -> None:
    check_bytes(tmp_path, name, *budget(40))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_damaged_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int(os.environ.get("PENSTOCK_FUZZ_SEED", secrets.randbelow(2**31)))
    count = int(os.environ.get("PENSTOCK_FUZZ_RECORDS", 20_000))
    print(f"seed {seed}, {count} records of each kind")
    for kind in ("csv", "json"):
        check_text(tmp_path, monkeypatch, kind, seed, count)
    check_csv_of_any_bytes(tmp_path, monkeypatch, seed, 4 * count)
    for name in BINARY:
        check_bytes(tmp_path, name, seed, count // 20)
