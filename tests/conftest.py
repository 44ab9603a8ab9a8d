"""What all tests share: how many random cases, and which; no waits for disks; which files need not be read at all."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.commands import select_process

settings.register_profile(
    "penstock", deadline=None, database=None, print_blob=False, suppress_health_check=list(HealthCheck)
)
settings.load_profile("penstock")
os.environ.setdefault("TZ", "UTC")
# Each process that a test starts, and each that shares the work, would compile all modules anew, for seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

#: A folder whose tests all have this mark, whatever its files say.
SPARK = Path(__file__).resolve().parent / "spark"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, default=None, help="how many random cases every property test tries")
    parser.addoption("--case-seed", type=int, default=None, help="another sequence of random cases than the usual one")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files that cannot have a test of the mark that `-m` begins with: reading all takes 20 s in every process."""
    expression: str = config.getoption("markexpr")
    if re.match(r"not spark\b", expression):
        return True if collection_path == SPARK else None
    wanted = re.fullmatch(r"(spark|slow)( and .*)?", expression)
    if wanted is None or collection_path.suffix != ".py" or (wanted[1] == "spark" and SPARK in collection_path.parents):
        return None
    words = {"spark": ("mark.spark",), "slow": ("mark.slow", "some_slow(")}[wanted[1]]
    text = collection_path.read_text()
    return None if any(word in text for word in words) else True


def pytest_collection_finish() -> None:
    """Take what has been collected out of the sight of the garbage collector: it stays until the end."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Extension modules look for what was never freed."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """A loss of power is played by `PowerCut`, which keeps its own account of what was synced, and a process that is
    killed leaves what it wrote to the system: only `test_storage.py` needs syncs. Handles must be open here, too."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def ready_processes() -> Iterator[None]:
    """Servers take their processes for one-time queries from one that has imported all: 1.9 s of CPU less each."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("penstock.results.select_workers.process_command", select_process)
        yield


@pytest.fixture
def case_count(request: pytest.FixtureRequest) -> int | None:
    """--cases, or None for a test's own default."""
    count: int | None = request.config.getoption("--cases")
    return count


@pytest.fixture
def case_seed(request: pytest.FixtureRequest) -> int | None:
    seed: int | None = request.config.getoption("--case-seed")
    return seed
