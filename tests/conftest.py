"""What all tests share: how many random cases, and which; no waits for disks; which files need not be read at all."""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
#: Files with the longest tests. Those of the first leave Spark's classes for later starts of a JVM, which take half of
#: the time with them, and those of the second, which start none, go beside these.
LONGEST = (
    "cli/test_results.py", "spark/test_kafka_source.py", "spark/test_live_soak_on_spark.py",
    "spark/test_soak_on_spark.py", "spark/test_lives_of_a_server.py", "spark/test_serve_demo.py",
    "spark/test_server_on_spark.py", "spark/test_start_histories_on_spark.py", "cli/test_run.py",
    "cli/test_run_faults.py",
)  # fmt: skip


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


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    spreads: dict[tuple[Path, str], CaseSpread] = {}
    for item in items:
        if not {*FOLDERS["server"]}.isdisjoint(item.path.parents):
            item.add_marker(pytest.mark.server)
        mark = item.get_closest_marker("spread")
        if mark is not None and isinstance(item, pytest.Function):
            spread = spreads.setdefault((item.path, item.originalname), CaseSpread(item.originalname, *mark.args))
            if spread.is_left_to_soak(item.callspec._idlist):
                item.add_marker(pytest.mark.slow)
    yield
    if (processes := os.environ.get("PYTEST_XDIST_WORKER_COUNT")) is not None:
        items[:] = longest_first(items, int(processes))


def longest_first(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return the tests in another order. Each process begins with an equal part of them, and in each of these parts the
    longest are first: at the end one takes from another what that has not begun, and waits for what it has."""
    names = {item: item.path.relative_to(HERE).as_posix() for item in items}
    others = iter([item for item in items if names[item] not in LONGEST])
    ordered: list[pytest.Item] = []
    for number in range(processes):
        size = (len(items) - len(ordered)) // (processes - number)
        part = [item for name in LONGEST[number::processes] for item in items if names[item] == name]
        ordered += [*part, *itertools.islice(others, max(0, size - len(part)))]
    return [*ordered, *others]


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
            patched.setattr("penstock.runtime.spark.startup.early_session.start_session_ahead", refuse)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests of a process that need none of their own: starting it is what costs."""
    from penstock.runtime.spark.startup.session import start_spark

    session = start_spark("local[2,4]")
    yield session
    session.stop()


@pytest.fixture
def case_count(request: pytest.FixtureRequest) -> int | None:
    """--cases, or None for a test's own default."""
    count: int | None = request.config.getoption("--cases")
    return count


@pytest.fixture
def case_seed(request: pytest.FixtureRequest) -> int | None:
    seed: int | None = request.config.getoption("--case-seed")
    return seed
