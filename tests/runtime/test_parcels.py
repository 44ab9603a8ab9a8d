"""Large blobs travel in files: what is read is what was sent, nothing else is set apart, and nothing is left lying."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.physical.elements import Elements
from penstock.physical.plan.plan import Channel, Exchange
from penstock.runtime.spark.worker import spill_files as parcels
from penstock.runtime.spark.worker.packets import Packet, Signal, answer_packets, channel_packets
from penstock.types import END


def elements(size: int, first: int = 0) -> Elements:
    values = np.arange(first, first + size)
    texts = pa.array([f"row {v}" for v in values.tolist()])
    return Elements((pa.array(values), texts), values + 7, np.full(size, END))


def rows(found: list[Elements]) -> list[tuple[int, str, int]]:
    return [
        (value, text, ts)
        for e in found
        for value, text, ts in zip(e.columns[0].to_pylist(), e.columns[1].to_pylist(), e.ts.tolist(), strict=True)
    ]


def test_large_elements_lie_in_one_file_of_the_attempt(tmp_path: Path) -> None:
    sizes = [parcels.LARGE // 8, 3, parcels.LARGE // 8 + 5]
    sent = [elements(size, number) for number, size in enumerate(sizes)]
    with parcels.SpillFiles(str(tmp_path), 4) as made:
        packets = list(made.lightened(p for e in sent for p in answer_packets(0, "q", [e])))
    assert [bytes(p.blob[:1]) == b"{" for p in packets] == [True, False, True]
    assert len(list(parcels.batch_folder(str(tmp_path), 4).iterdir())) == 1
    assert [rows(parcels.unpacked(p.blob)) for p in packets] == [rows([e]) for e in sent]


def test_elements_outlive_the_file_that_they_came_in(tmp_path: Path) -> None:
    with parcels.SpillFiles(str(tmp_path), 0) as made:
        (packet,) = made.lightened(channel_packets(0, Channel(3, Exchange((0,))), [elements(parcels.LARGE // 8)], 1))
    found = parcels.unpacked(packet.blob)
    parcels.forget(str(tmp_path), 0)
    assert not parcels.batch_folder(str(tmp_path), 0).exists()
    assert rows(found) == rows([elements(parcels.LARGE // 8)])
    with pytest.raises(PenstockError) as caught:
        parcels.unpacked(packet.blob)
    assert caught.value.code == "P0605"


def test_two_attempts_share_no_file(tmp_path: Path) -> None:
    found = []
    for first in (0, 50):
        with parcels.SpillFiles(str(tmp_path), 0) as made:
            found += made.lightened(answer_packets(0, "q", [elements(parcels.LARGE // 8, first)]))
    assert [rows(parcels.unpacked(p.blob))[0] for p in found] == [(0, "row 0", 7), (50, "row 50", 57)]


def test_only_elements_are_set_apart(tmp_path: Path) -> None:
    told = Packet(0, Signal.REJECTED, b"[" + b" " * parcels.LARGE + b"]")
    with parcels.SpillFiles(str(tmp_path), 0) as made:
        assert list(made.lightened([told])) == [told]
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_stops_the_run_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "parcels").write_text("in the way")
    with parcels.SpillFiles(str(tmp_path), 0) as made, pytest.raises(PenstockError) as caught:
        list(made.lightened(answer_packets(0, "q", [elements(parcels.LARGE // 8)])))
    assert caught.value.code == "P0601"
