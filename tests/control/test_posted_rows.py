"""Rows that are posted: durable, once per key, in order, also over failures and losses of power."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.heartbeats import Heartbeat
from penstock.connectors.sources import open_source
from penstock.connectors.sources.posted_keys import KnownKeys
from penstock.control import posted_rows
from penstock.control.posted_rows import PostedRows
from penstock.errors import PenstockError
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import KINDS, LOSSES, FailingCalls, PowerCut, PowerLost
from penstock.types import CALENDAR, Field, Schema

SCHEMA = Schema((Field("ts", pa.timestamp("us", "UTC")), Field("v", pa.int32())))
STREAM = Source("S", True, SCHEMA, "HTTP", (), 0, CALENDAR)
DAY = 86400.0


def rows(*values: int) -> pa.Table:
    stamps = pa.array(values, pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"ts": stamps, "v": pa.array(values, pa.int32())})


def read(posted: PostedRows, known: frozenset[str] = frozenset()) -> list[int]:
    connector = open_source(posted.source(STREAM, 3))
    splits = [split for path in connector.discover(known) for split in connector.splits(path)]
    return [v for split in splits for one in connector.read(split, (1,)) for v in one.batch.column(0).to_pylist()]


def test_posts_are_read_in_order_and_once_per_key(tmp_path: Path) -> None:
    posted = PostedRows(tmp_path, DAY)
    assert posted.post(STREAM, 3, rows(1, 2), "a")
    assert posted.post(STREAM, 3, rows(3))
    assert not posted.post(STREAM, 3, rows(1, 2), "a")
    assert not PostedRows(tmp_path, DAY).post(STREAM, 3, rows(1, 2), "a")
    assert posted.post(STREAM, 4, rows(9), "b")
    with pytest.raises(PenstockError, match="P0731"):
        posted.post(STREAM, 3, rows(1, 3), "a")
    assert read(posted) == [1, 2, 3]
    assert posted.table(STREAM, 3).column("v").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(("owner", "name"), [(posted_rows, "append"), (KnownKeys, "add")], ids=["append", "add"])
def test_an_internal_error_behind_a_post_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    posted, done = PostedRows(tmp_path, DAY), getattr(owner, name)

    def broken(*rest: object) -> None:
        done(*rest)
        raise ZeroDivisionError

    assert posted.post(STREAM, 3, rows(1), "a")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, broken)
        with pytest.raises(ZeroDivisionError):
            posted.post(STREAM, 3, rows(2), "b")
    assert not posted.post(STREAM, 3, rows(2), "b"), "it is there"
    assert posted.post(STREAM, 3, rows(3), "c")
    assert read(posted) == [1, 2, 3]


def test_a_key_is_of_one_source(tmp_path: Path) -> None:
    posted = PostedRows(tmp_path, DAY)
    assert posted.post(STREAM, 3, rows(1), "ada a")
    for known in (posted, PostedRows(tmp_path, DAY)):
        with pytest.raises(PenstockError, match="P0731: the idempotency key a was used for something else"):
            known.post(STREAM, 4, rows(1), "ada a")
        assert not known.post(STREAM, 3, rows(1), "ada a")
    assert posted.post(STREAM, 4, rows(1), "eve a")
    assert posted.post(STREAM, 4, rows(1), "ada b")
    # Keys of the system itself are those of a statement, which may change several sources.
    assert posted.post(STREAM, 4, rows(1), "ada a", same=True)
    posted.drop(3)
    assert posted.post(STREAM, 5, rows(1), "ada c")
    assert PostedRows(tmp_path, 0.0).post(STREAM, 6, rows(1), "ada c")
    open_source(posted.source(STREAM, 5)).forget(open_source(posted.source(STREAM, 5)).discover(frozenset()))
    with pytest.raises(PenstockError, match="P0731"):
        PostedRows(tmp_path, DAY).post(STREAM, 7, rows(1), "ada c")


def test_rows_of_another_type_are_refused(tmp_path: Path) -> None:
    posted = PostedRows(tmp_path, DAY)
    texts = pa.table({"ts": ["2020-01-01 00:00:00", "soon"], "v": ["1", "2"]})
    with pytest.raises(PenstockError, match="P0203"):
        posted.post(STREAM, 3, texts)
    with pytest.raises(PenstockError, match="P0305"):
        posted.post(STREAM, 3, rows(1).select(["v"]))
    assert posted.post(STREAM, 3, texts.slice(0, 1)) and read(posted) == [1]


def test_what_was_read_goes_and_its_key_and_number_stay(tmp_path: Path) -> None:
    posted = PostedRows(tmp_path, DAY)
    for number in range(3):
        posted.post(STREAM, 3, rows(number), f"key {number}")
    connector = open_source(posted.source(STREAM, 3))
    paths = connector.discover(frozenset())
    connector.forget(paths)
    assert connector.discover(frozenset()) == []
    again = PostedRows(tmp_path, DAY)
    assert not again.post(STREAM, 3, rows(0), "key 0")
    assert again.post(STREAM, 3, rows(7))
    # A number that came again would be taken for a file that has been read.
    assert read(again, frozenset(paths)) == [7]


def test_a_post_that_is_read_and_removed_at_once_has_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the call that posts it returns, the ingest may have read it."""
    posted, append = PostedRows(tmp_path, DAY), posted_rows.append

    def removed(folder: Path, *rest: Any) -> Any:
        made = append(folder, *rest)
        connector = open_source(posted.source(STREAM, 3))
        connector.forget(connector.discover(frozenset()))
        return made

    with monkeypatch.context() as patch:
        patch.setattr(posted_rows, "append", removed)
        assert posted.post(STREAM, 3, rows(1), "a")
    assert not posted.post(STREAM, 3, rows(1), "a")
    assert not PostedRows(tmp_path, DAY).post(STREAM, 3, rows(1), "a")


def test_keys_expire(tmp_path: Path) -> None:
    posted = PostedRows(tmp_path, 0.0)
    posted.post(STREAM, 3, rows(1), "a")
    posted.post(STREAM, 3, rows(2), "b")
    connector = open_source(posted.source(STREAM, 3))
    connector.forget(connector.discover(frozenset()))
    posted.expire()
    assert [path.name for path in (tmp_path / "3").rglob("*") if path.is_file()] == ["000000000002.json"]
    assert posted.post(STREAM, 3, rows(1), "a")
    assert read(posted) == [1]
    posted.drop(3)
    assert not (tmp_path / "3").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_post_that_fails_has_not_happened_and_can_be_repeated(tmp_path: Path, kind: str) -> None:
    for number in range(1, 20):
        folder = tmp_path / str(number)
        calls = FailingCalls(kind, number)
        with replaced_storage(LocalStorage(calls)):
            posted = PostedRows(folder, DAY)
            with suppress(PenstockError):
                posted.post(STREAM, 3, rows(1), "a")
            posted.post(STREAM, 3, rows(1), "a")
            assert read(posted) == [1]
        if not calls.failed:
            return


def test_a_post_survives_a_loss_of_power_once_it_was_accepted(tmp_path: Path) -> None:
    for how in LOSSES:
        for number in range(1, 100):
            folder, spare = tmp_path / how / str(number), tmp_path / f"spare {how} {number}"
            spare.mkdir(parents=True)
            folder.mkdir(parents=True)
            calls = PowerCut(spare, number)
            accepted: list[int] = []
            finished = False
            with replaced_storage(LocalStorage(calls)), suppress(PowerLost):
                posted = PostedRows(folder, DAY)
                for value in range(3):
                    posted.post(STREAM, 3, rows(value), str(value))
                    accepted.append(value)
                connector = open_source(posted.source(STREAM, 3))
                connector.forget(connector.discover(frozenset()))
                finished = True
            calls.lose(how, random.Random(number), [folder])
            posted = PostedRows(folder, DAY)
            for value in range(3):
                assert posted.post(STREAM, 3, rows(value), str(value)) is False or value not in accepted
            left = read(posted)
            assert left == sorted(set(left)), "nothing twice"
            if finished:
                break


def test_many_keys_lie_in_few_files_and_expire_while_rows_are_posted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_700_000_000_000_000]
    monkeypatch.setattr(posted_rows, "_now", lambda: now[0])
    monkeypatch.setattr(time, "time_ns", lambda: now[0] * 1000)
    posted = PostedRows(tmp_path, 60.0)
    connector = open_source(posted.source(STREAM, 3))
    table, counts, sizes = rows(1), [], []
    for number in range(400):
        now[0] += 1_000_000
        assert posted.post(STREAM, 3, table, f"key {number}")
        if number % 2:
            connector.forget(connector.discover(frozenset()))
            files = [path for path in tmp_path.rglob("*") if path.is_file()]
            counts.append(len(files))
            sizes.append(sum(path.stat().st_size for path in files))
        if number == 40:
            again = PostedRows(tmp_path, 60.0)
            assert all(not again.post(STREAM, 3, table, f"key {one}") for one in range(41))
    assert max(counts) < 12 and max(sizes[100:]) < 2 * max(sizes[:60])
    again = PostedRows(tmp_path, 60.0)
    assert not again.post(STREAM, 3, table, "key 399") and again.post(STREAM, 3, table, "key 1")
    assert len(posted._known[3].keys) < 80


def test_a_heartbeat_survives_a_loss_of_power_once_it_was_accepted(tmp_path: Path) -> None:
    """At each call of the storage; posted again by its key it is there once, between the rows around it."""
    for number in range(1, 40):
        how = LOSSES[number % len(LOSSES)]
        folder, spare = tmp_path / str(number), tmp_path / f"{number}.spare"
        folder.mkdir()
        spare.mkdir()
        calls, accepted = PowerCut(spare, number), False
        posted = PostedRows(folder, DAY)
        posted.post(STREAM, 3, rows(1), "before")
        with replaced_storage(LocalStorage(calls)), suppress(PowerLost):
            accepted = posted.post(STREAM, 3, rows(), "beat", record=Heartbeat(5))
        calls.lose(how, random.Random(number), [folder])
        again = PostedRows(folder, DAY)
        assert not accepted or again.has(3, "beat")
        again.post(STREAM, 3, rows(), "beat", record=Heartbeat(5))
        again.post(STREAM, 3, rows(6))
        connector = open_source(again.source(STREAM, 3))
        splits = [split for path in connector.discover(frozenset()) for split in connector.splits(path)]
        assert [split.heartbeat for split in splits] == [None, 5, None]
        assert read(PostedRows(folder, DAY)) == [1, 6]
        if accepted:
            return
    raise AssertionError("it is accepted at some time")
