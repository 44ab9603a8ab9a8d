"""Writes of a batch that run beside each other: all are done, and the first error is told, before the batch counts."""

from __future__ import annotations

import threading

import pytest

from penstock.runtime.spark.job import WritesBeside


def test_two_writes_run_at_the_same_time() -> None:
    writes, met = WritesBeside(), threading.Barrier(2)
    done: list[int] = []

    def write(number: int) -> None:
        # Each waits for the other.
        met.wait(10)
        done.append(number)

    for number in range(2):
        writes.begin(lambda number=number: write(number))  # type: ignore[misc]
    writes.finish()
    assert sorted(done) == [0, 1]
    writes.close()


def test_what_fails_is_told_once_everything_has_ended() -> None:
    writes, done = WritesBeside(), threading.Event()

    def refused() -> None:
        raise OSError("the disk is full")

    writes.begin(refused)
    writes.begin(done.set)
    with pytest.raises(OSError, match="the disk is full"):
        writes.finish()
    assert done.is_set()
    # It is told once.
    writes.finish()
    writes.close()
