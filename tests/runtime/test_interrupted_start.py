"""A start that loses power while it removes what an earlier interrupted start left: the same command still starts."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from inline_run import InlineRun, cold, write_files

from penstock.connectors.sinks.files import read_result
from penstock.runtime.spark.checkpoint.epochs import latest_epoch
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.place import forget_all
from penstock.runtime.spark.launch import _check_is_checkpoint
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import LOSSES, PowerCut, PowerLost

SCRIPT = """SET shards = 2;
CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{data}', format 'parquet') TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION R (k INT, name BIGINT) FROM MEMORY (); INSERT INTO R VALUES (0, 10);
CREATE QUERY answer INTO FILES (path '{out}') AS SELECT ISTREAM(x, name) FROM S [NOW], R WHERE S.k = R.k;"""


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_power_that_goes_while_an_earlier_start_is_removed(tmp_path: Path, step: int) -> None:
    write_files(tmp_path / "data", range(2))
    text = SCRIPT.format(data=tmp_path / "data", out=tmp_path / "out")
    place, whole, spare = tmp_path / "checkpoint", tmp_path / "whole", tmp_path / "spare"
    spare.mkdir()
    calm = SCRIPT.format(data=tmp_path / "data", out=tmp_path / "calm")
    InlineRun(calm, tmp_path / "calm-checkpoint").run()
    InlineRun(text, place).rounds.stop()
    # The earlier start was interrupted before its epoch was on the disk: nothing but its remains counts.
    shutil.rmtree(place / "penstock" / "epochs")
    (place / "spark").mkdir()
    place.rename(whole)

    def attempt(number: int) -> PowerCut:
        for folder in (place, spare, tmp_path / "out"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, place)
        spare.mkdir()
        cold()
        calls = PowerCut(spare, number)
        with replaced_storage(LocalStorage(calls)):
            try:
                InlineRun(text, place).rounds.stop()
            except PowerLost:
                calls.lose(LOSSES[number % len(LOSSES)], random.Random(number), [place, tmp_path / "out"])
        return calls

    count = attempt(0).count
    assert count > 40
    for number in range(1, count + 1, step):
        attempt(number)
        _check_is_checkpoint(place)
        if number % 10 == 0:
            cold()
            assert InlineRun(text, place).run().ended, number
            assert read_result(str(tmp_path / "out")).equals(read_result(str(tmp_path / "calm"))), number


def test_power_that_goes_while_a_run_without_a_delivered_batch_is_removed(tmp_path: Path) -> None:
    """It has a state already, and a state without epochs counts as damage."""
    write_files(tmp_path / "data", range(2))
    place, whole, spare = tmp_path / "checkpoint", tmp_path / "whole", tmp_path / "spare"
    InlineRun(SCRIPT.format(data=tmp_path / "data", out=tmp_path / "out"), place).run(0, "sinks")
    assert (place / "penstock" / "state").exists() and not (place / "penstock" / "delivered.json").exists()
    place.rename(whole)

    def attempt(number: int, loss: str) -> int:
        for folder in (place, spare):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, place)
        spare.mkdir()
        calls = PowerCut(spare, number)
        with replaced_storage(LocalStorage(calls)):
            try:
                forget_all(Folder(place / "penstock"), place)
            except PowerLost:
                calls.lose(loss, random.Random(number), [place])
        return calls.count

    for loss in LOSSES:
        for number in range(1, attempt(0, loss) + 1):
            attempt(number, loss)
            latest_epoch(Folder(place / "penstock"))
