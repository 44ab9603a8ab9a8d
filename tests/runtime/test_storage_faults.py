"""Every system call of a batch fails once, and power goes at every one: the run ends with a code and its results are
intact, and the next start comes to what a run comes to that nothing befell."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import InlineRun, cold, write_files

from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.runtime.state import chunk_files
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import KINDS, LOSSES, FailingCalls, PowerCut, PowerLost

FILES = 4

SHAPES = {
    "filter": "SELECT ISTREAM(k, x) FROM S [NOW] WHERE x > 5",
    "sums": "SELECT k, SUM(x) AS s, COUNT(*) AS n FROM S [RANGE 30 SECONDS] GROUP BY k",
    "join": "SELECT ISTREAM(a.x, b.x AS y) FROM S [RANGE 9 SECONDS] AS a, S [RANGE 20 SECONDS] AS b WHERE a.k = b.k",
    "distinct": "SELECT DISTINCT name, x FROM S [RANGE 25 SECONDS], R WHERE S.k = R.k",
    "rows": "SELECT k, MAX(x) AS m FROM S [PARTITION BY k ROWS 7] GROUP BY k",
}


def script(tmp: Path, shape: str, out: str = "out") -> str:
    return f"""SET max_batch_bytes = 1; SET shards = 2;
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp / "data"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND ON ERROR DEAD LETTER;
    CREATE RELATION R (k INT, name BIGINT) FROM MEMORY (); INSERT INTO R VALUES (0, 10), (1, 11), (2, 12);
    CREATE QUERY answer INTO FILES (path '{tmp / out}', format 'csv') AS {SHAPES[shape]};"""


@pytest.fixture
def calm(tmp_path: Path) -> Path:
    write_files(tmp_path / "data", range(FILES))
    # Two late rows a file: dead letters.
    for number, path in enumerate(sorted((tmp_path / "data").iterdir())):
        late = pa.table({"ts": [number * 20 - 50, 1], "k": pa.array([1, 2], pa.int32()), "x": [3, 4]})
        pq.write_table(pa.concat_tables([pq.read_table(path), late]), path)
    cold()
    return tmp_path


def rows(tmp: Path, out: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = read_result(str(tmp / out)).to_pylist()
    return found


def letters(tmp: Path, checkpoint: str) -> list[str]:
    found = (tmp / checkpoint / "penstock" / "dead-letters").rglob("*.jsonl")
    return sorted(line for path in found for line in path.read_text().splitlines())


class Case:
    """A shape of query, what it comes to, and a moment of its run: with nothing there, or behind two batches."""

    def __init__(self, tmp: Path, shape: str, moment: str) -> None:
        self.tmp, self.shape, self.moment = tmp, shape, moment
        with replaced_storage(LocalStorage(FailingCalls())):
            InlineRun(script(tmp, shape, "calm"), tmp / "calm-checkpoint").run()
            self.expected, self.letters = rows(tmp, "calm"), letters(tmp, "calm-checkpoint")
            if moment == "batch":
                InlineRun(script(tmp, shape), tmp / "checkpoint").run(2)
                for name in ("checkpoint", "out"):
                    shutil.copytree(tmp / name, tmp / f"whole-{name}")
        assert self.expected and len(self.letters) >= FILES

    def restore(self) -> None:
        cold()
        for name in ("checkpoint", "out"):
            shutil.rmtree(self.tmp / name, ignore_errors=True)
            if self.moment == "batch":
                shutil.copytree(self.tmp / f"whole-{name}", self.tmp / name)

    def attempt(self) -> str:
        """Start and run one batch; returns the code of the error, if there was one."""
        run: list[InlineRun] = []
        with ExitStack() as stack:
            stack.callback(lambda: [one.rounds.stop() for one in run])
            try:
                run.append(InlineRun(script(self.tmp, self.shape), self.tmp / "checkpoint"))
                run[0].step()
            except PenstockError as error:
                return error.code
        return ""

    def check(self, what: str) -> None:
        """What is told so far is the beginning of the answer, and the next start comes to its end."""
        if (self.tmp / "out" / "_penstock.json").exists():
            so_far = rows(self.tmp, "out")
            assert so_far == self.expected[: len(so_far)], what
        cold()
        with replaced_storage(LocalStorage(FailingCalls())):
            run = InlineRun(script(self.tmp, self.shape), self.tmp / "checkpoint").run()
        assert run.ended, what
        assert rows(self.tmp, "out") == self.expected, what
        assert letters(self.tmp, "checkpoint") == self.letters, what
        assert not [path for path in self.tmp.rglob("*.tmp") if "whole" not in str(path)], what


def fail_each(case: Case, chosen: Callable[[int], bool]) -> Counter[str]:
    """Fail every call that is `chosen` by its number; returns how often which outcome came."""
    case.restore()
    calls = FailingCalls()
    with replaced_storage(LocalStorage(calls)):
        assert case.attempt() == ""
    found: Counter[str] = Counter()
    for kind in KINDS:
        for number in (n for n in range(1, calls.counts[kind] + 1) if chosen(n)):
            case.restore()
            failing = FailingCalls(kind, number)
            with replaced_storage(LocalStorage(failing)):
                code = case.attempt()
            assert failing.failed and code in ("", "P0601", "P0502"), (kind, number, code)
            case.check(f"{case.shape}, {case.moment}: {kind} {number}")
            found[f"{kind} {code or 'identical'}"] += 1
    return found


def cut_each(case: Case, chosen: Callable[[int], bool], losses: Callable[[int], tuple[str, ...]]) -> Counter[str]:
    """Let power go at every call that is `chosen`."""
    case.restore()
    spare = case.tmp / "spare"
    spare.mkdir()
    calls = PowerCut(spare)
    with replaced_storage(LocalStorage(calls)):
        assert case.attempt() == ""
    found: Counter[str] = Counter()
    for number in (n for n in range(1, calls.count + 2) if chosen(n)):
        for how in losses(number):
            case.restore()
            shutil.rmtree(spare)
            spare.mkdir()
            cut = PowerCut(spare, number)
            with replaced_storage(LocalStorage(cut)):
                try:
                    case.attempt()
                except PowerLost:
                    found["cut"] += 1
            cut.lose(how, random.Random(number), [case.tmp / "checkpoint", case.tmp / "out"])
            case.check(f"{case.shape}, {case.moment}: power went at call {number}, lost {how}")
            found[how] += 1
    return found


@pytest.mark.spread(2)
@pytest.mark.parametrize("moment", ["start", "batch"])
def test_a_call_that_fails(calm: Path, moment: str) -> None:
    found = fail_each(Case(calm, "sums", moment), lambda n: n % 9 == 1)
    assert {key.split()[0] for key in found} >= {"open", "write", "fsync", "rename"}
    assert sum(count for key, count in found.items() if "P0" in key) >= 5


@pytest.mark.spread(2)
@pytest.mark.parametrize("moment", ["start", "batch"])
def test_power_that_goes(calm: Path, moment: str) -> None:
    found = cut_each(Case(calm, "sums", moment), lambda n: n % 14 == 1, lambda n: (LOSSES[n // 14 % len(LOSSES)],))
    assert found["cut"] >= 5


#: Manifests that name a base: by how much of it changes before the next one.
BASES = {"a base for each batch": 0.0, "one base": 10.0**6}


@pytest.fixture(params=BASES)
def bases(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_files, "_LEAST_ENTRIES", 0)
    monkeypatch.setattr(chunk_files, "_MOST_CHANGED", BASES[request.param])


@pytest.mark.usefixtures("bases")
def test_manifests_with_a_base_when_a_call_fails(calm: Path) -> None:
    found = fail_each(Case(calm, "sums", "batch"), lambda n: n % 9 == 4)
    assert {key.split()[0] for key in found} >= {"open", "write", "fsync"}


@pytest.mark.usefixtures("bases")
def test_manifests_with_a_base_when_power_goes(calm: Path) -> None:
    found = cut_each(Case(calm, "sums", "batch"), lambda n: n % 14 == 6, lambda n: (LOSSES[n // 14 % len(LOSSES)],))
    assert found["cut"] >= 5


@pytest.mark.slow
@pytest.mark.usefixtures("bases")
@pytest.mark.parametrize("moment", ["start", "batch"])
def test_manifests_with_a_base_when_power_goes_at_every_call(calm: Path, moment: str) -> None:
    found = cut_each(Case(calm, "distinct", moment), lambda n: True, lambda n: LOSSES)
    assert found["cut"] >= 200


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["start", "batch"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_call_that_fails(calm: Path, shape: str, moment: str) -> None:
    found = fail_each(Case(calm, shape, moment), lambda n: True)
    print(f"{shape}, {moment}: {dict(found)}")
    assert sum(found.values()) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["start", "batch"])
@pytest.mark.parametrize("shape", SHAPES)
def test_power_that_goes_at_every_call(calm: Path, shape: str, moment: str) -> None:
    found = cut_each(Case(calm, shape, moment), lambda n: True, lambda n: LOSSES)
    print(f"{shape}, {moment}: {dict(found)}")
    assert found["cut"] >= 200
