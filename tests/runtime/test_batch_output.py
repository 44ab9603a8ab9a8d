"""What the packets of a batch say to the driver."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.runtime.spark.output.batch_output import read_output
from penstock.runtime.spark.worker.packets import round_packet


def table(*rounds: str) -> pa.Table:
    blobs = pa.array([bytes(round_packet(number).blob) for number in rounds], pa.binary())
    return pa.table({"shard": [0] * len(rounds), "kind": ["round"] * len(rounds), "blob": blobs})


def test_all_tasks_of_a_batch_read_one_round() -> None:
    assert read_output(table("000000256", "000000256"), lambda report: None).round == 256
    with pytest.raises(PenstockError) as caught:
        read_output(table("000000122", "000000256"), lambda report: None)
    assert caught.value.code == "P0605" and "122 and 256" in caught.value.message
