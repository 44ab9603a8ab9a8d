"""One run at a time may use a checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.runtime.spark.checkpoint.checkpoint_lock import claim


def refused(place: Path) -> str:
    with pytest.raises(PenstockError) as told:
        claim(place)
    assert told.value.code == "P0609"
    return told.value.message


def test_a_second_claim_is_refused_until_the_first_is_released(tmp_path: Path) -> None:
    held = claim(tmp_path / "checkpoint")
    assert f"process {os.getpid()}" in refused(tmp_path / "checkpoint")
    # By whatever name.
    (tmp_path / "other").symlink_to(tmp_path / "checkpoint")
    refused(tmp_path / "other")
    held.release()
    held.release()
    assert list((tmp_path / "checkpoint").iterdir()) == []
    claim(tmp_path / "checkpoint").release()


def test_a_run_that_is_over_lets_go(tmp_path: Path) -> None:
    held = claim(tmp_path)
    ended = False
    held.over = lambda: ended
    refused(tmp_path)
    ended = True
    again = claim(tmp_path)
    held.release()
    refused(tmp_path)
    again.release()


def test_the_claim_of_a_process_goes_with_it(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path\n"
    code += "from penstock.runtime.spark.checkpoint.checkpoint_lock import claim\n"
    code += "held = claim(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        assert f"process {other.pid}" in refused(tmp_path)
        other.send_signal(signal.SIGKILL)
    claim(tmp_path).release()
