"""Runs of ticks and counts on their way between processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.physical.elements import Elements, decode, encode
from penstock.physical.kernels.run_length import run_length_decoded, run_length_encoded
from penstock.physical.plan.plan import Channel, Exchange
from penstock.runtime.spark.worker.packets import channel_packets, read_elements
from penstock.runtime.spark.worker.spill_files import LARGE, SpillFiles, unpacked


def batch(**columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 100, 1000])
def test_what_was_squeezed_comes_back(size: int) -> None:
    every = np.arange(size)
    given = batch(
        one=np.full(size, -7),
        runs=every // 10 * 2**40,
        single=every,
        mixed=np.where(every < 50, every, 3),
        small=(every // 10).astype(np.int32),
        text=["a"] * size,
    )
    for piece in (given, given.slice(size // 3)):
        (came,) = decode(encode([run_length_encoded(piece)]))
        assert run_length_decoded(came).equals(piece)


def test_long_runs_take_no_room() -> None:
    size = 10_000
    long = batch(ts=np.arange(size) // 1000, count=np.ones(size, np.int64))
    assert run_length_encoded(long).nbytes < 300
    short = batch(ts=np.arange(size) // 2)
    assert run_length_encoded(short).equals(short)


def test_nulls_stay_as_they_are() -> None:
    given = batch(n=pa.array([None] * 10, pa.int64()))
    assert run_length_encoded(given).equals(given)


def test_packets_tell_runs_and_give_elements() -> None:
    ticks = np.arange(4000) // 1000
    sent = Elements((pa.array(np.arange(4000, dtype=np.int32)),), ticks, ticks + 5, np.full(4000, -1))
    (packet,) = channel_packets(0, Channel(1, Exchange(())), [sent], 2)
    assert len(packet.blob) < 4000 * 4 + 2000
    (came,) = read_elements(packet.blob)
    assert came.columns == sent.columns
    for name in ("ts", "exp", "sign"):
        np.testing.assert_array_equal(getattr(came, name), getattr(sent, name))


def test_parcels_tell_runs_and_give_elements(tmp_path: Path) -> None:
    size = LARGE // 4 + 1
    ticks = np.arange(size) // 1000
    sent = Elements((pa.array(np.arange(size, dtype=np.int32)),), ticks, ticks + 5)
    with SpillFiles(str(tmp_path), 0) as parcels:
        (packet,) = parcels.lightened(channel_packets(0, Channel(1, Exchange(())), [sent], 2))
    assert len(packet.blob) < 1000
    (came,) = unpacked(pa.py_buffer(packet.blob))
    assert came.columns == sent.columns
    np.testing.assert_array_equal(came.ts, sent.ts)
    np.testing.assert_array_equal(came.exp, sent.exp)
