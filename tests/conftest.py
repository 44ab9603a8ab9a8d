"""What all tests share: how many random cases, and which; no waits for disks; which files need not be read at all."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.commands import select_process
from tests.spread import CaseSpread

settings.register_profile(
    "penstock", deadline=None, database=None, print_blob=False, suppress_health_check=list(HealthCheck)
)
settings.load_profile("penstock")
os.environ.setdefault("TZ", "UTC")
# Each process that a test starts, and each that shares the work, would compile all modules anew, for seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

HERE = Path(__file__).resolve().parent
#: Folders whose tests all have a mark, whatever their files say.
FOLDERS = {
    "spark": (HERE / "spark",),
    "server": (HERE / "server", HERE / "page", HERE / "client"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, default=None, help="how many random cases every property test tries")
    parser.addoption("--case-seed", type=int, default=None, help="another sequence of random cases than the usual one")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files that cannot have a test that `-m` selects: reading all takes 20 s in every process."""
    marks = str(config.getoption("markexpr")).split(" and ")
    if any(f"not {mark}" in marks and collection_path in folders for mark, folders in FOLDERS.items()):
        return True
    wanted = marks[0]
    if wanted not in ("spark", "server", "slow") or collection_path.suffix != ".py":
        return None
    if not {*FOLDERS.get(wanted, ())}.isdisjoint(collection_path.parents):
        return None
    text = collection_path.read_text()
    return None if f"mark.{wanted}" in text or (wanted == "slow" and "mark.spread(" in text) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    spreads: dict[tuple[Path, str], CaseSpread] = {}
    for item in items:
        if not {*FOLDERS["server"]}.isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.server)
        mark = item.get_closest_marker("spread")
        if mark is not None and isinstance(item, pytest.Function):
            spread = spreads.setdefault((item.path, item.originalname), CaseSpread(item.originalname, *mark.args))
            if spread.is_left_to_soak(item.callspec._idlist):
                item.add_marker(pytest.mark.slow)


def pytest_configure() -> None:
    """Collect garbage after 20,000 new objects, not 700: it takes 5 % of the time of tests, and finds little."""
    gc.set_threshold(20_000, 10, 10)


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


@pytest.fixture(scope="session", autouse=True)
def no_spark_without_the_mark(request: pytest.FixtureRequest) -> Iterator[None]:
    """A JVM that is started while a script is read takes 15 s of CPU, and stays until the last test."""

    def refuse(*_given: object) -> None:
        raise AssertionError("a test that starts Spark has no mark that says so")

    with pytest.MonkeyPatch.context() as patched:
        if "not spark" in str(request.config.getoption("markexpr")):
            patched.setattr("penstock.runtime.spark.startup.ahead.start_session_ahead", refuse)
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
