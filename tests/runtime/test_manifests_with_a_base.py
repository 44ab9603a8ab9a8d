"""Manifests that name a base and what has changed since: what is read is what was written, whatever fails."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from test_faults import DAMAGE

from penstock.errors import PenstockError
from penstock.physical.execution.marks import StageMarks
from penstock.physical.execution.progress import SourceProgress
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.state_files import StateFiles, sweep
from penstock.runtime.state import chunk_files
from penstock.runtime.state.chunk_files import BASE
from penstock.runtime.state.shard_manifest import ShardManifest, StoredSynopsis
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import LOSSES, FailingCalls, PowerCut, PowerLost


def batch(value: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"c": pa.array([value], pa.int64())})


@dataclass
class State:
    """The state of a stage with steps that come, go and change; what each chunk holds follows from its name."""

    count: int = 200
    batch: int = -1
    token: str = ""
    synopses: dict[str, StoredSynopsis] = field(default_factory=dict)
    marks: dict[str, dict[str, int]] = field(default_factory=dict)
    firsts: dict[int, dict[str, int | None]] = field(default_factory=dict)
    number: int = 0

    def step(self, draw: random.Random, changed: int) -> tuple[dict[str, pa.RecordBatch], set[str]]:
        """Go on by a batch in which `changed` steps change; return the chunks that are new and those that are gone."""
        before = self.chunks
        self.batch += 1
        if not self.synopses:
            for _ in range(self.count):
                self._add(draw)
        for key in draw.sample(sorted(self.synopses), min(changed, len(self.synopses))):
            how = draw.randrange(4)
            if how == 0:
                del self.synopses[key]
                self.marks.pop(key, None)
                self._add(draw)
            elif how == 1 and key in self.marks:
                # As operators may do whose marks are what they hold.
                self.marks[key]["done"] += 1
            else:
                self._set(key, draw)
        self.firsts[self.batch] = {"S": self.batch, "R": None}
        self.firsts.pop(self.batch - 5, None)
        self.token = f"{draw.getrandbits(64):016x}"
        now = self.chunks
        return {name: batch(int(name.rpartition(".")[2])) for name in now - before}, before - now

    def copy(self) -> State:
        marks = {key: dict(one) for key, one in self.marks.items()}
        return replace(self, synopses=dict(self.synopses), marks=marks, firsts=dict(self.firsts))

    @property
    def chunks(self) -> set[str]:
        return {f"{name}.{i}" for name, synopsis in self.synopses.items() for i in synopsis.chunks}

    @property
    def manifest(self) -> ShardManifest:
        progress = {"S": SourceProgress(0, self.batch, False, 5)}
        marks = StageMarks(progress, dict(self.firsts), dict(self.marks))
        return ShardManifest(self.token, self.batch // 3, marks, dict(self.synopses))

    def _add(self, draw: random.Random) -> None:
        self.number += 1
        key = f"k{self.number}.rows"
        if draw.random() < 0.7:
            self.marks[key] = {"done": self.number}
        self._set(key, draw)

    def _set(self, key: str, draw: random.Random) -> None:
        self.number += 1
        chunks = [*self.synopses[key].chunks[-1:], self.number] if key in self.synopses else [self.number]
        self.synopses[key] = StoredSynopsis({"next": self.number}, chunks, "KeyedTable", 1, draw.randrange(9))


def save(root: Path, state: State, new: dict[str, pa.RecordBatch], gone: set[str]) -> None:
    StateFiles(str(root), 1, 0, state.batch).save(state.manifest, new, gone)


def cold() -> None:
    chunk_files._WRITTEN.clear()


def shard(root: Path) -> Path:
    return root / "state" / "1" / "0"


def bases(root: Path) -> list[str]:
    return sorted(path.name for path in shard(root).iterdir() if path.suffix == BASE)


def check(root: Path, state: State) -> None:
    """A process that knows nothing finds the state, with all its chunks."""
    cold()
    found = StateFiles(str(root), 1, 0, state.batch + 1)
    assert found.manifest() == state.manifest and found.token == state.token
    assert {name for chunks in found.files.values() for name in chunks} == state.chunks
    for name in sorted(state.chunks)[:: max(1, len(state.chunks) // 5)]:
        assert found.chunk(name).equals(batch(int(name.rpartition(".")[2])))


@pytest.mark.parametrize("seed", range(6))
def test_what_is_read_is_what_was_written(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    state = State(draw.choice([100, 140, 400]))
    written = 0
    for _ in range(60):
        save(tmp_path, state, *state.step(draw, draw.choice([0, 1, 1, 2, 5, 40, 500])))
        written += (shard(tmp_path) / f"{state.batch:09d}.json").stat().st_size < 20_000
        # At most that of this batch, that of the one before, and what that one has replaced.
        assert len(bases(tmp_path)) <= 3
        if draw.random() < 0.3:
            check(tmp_path, state)
    check(tmp_path, state)
    assert written >= 10


def test_a_batch_that_changes_little_writes_little(tmp_path: Path) -> None:
    draw, state = random.Random(1), State(1_000)
    save(tmp_path, state, *state.step(draw, 0))
    (base,) = bases(tmp_path)
    whole = (shard(tmp_path) / base).stat().st_size
    sizes = []
    for _ in range(40):
        save(tmp_path, state, *state.step(draw, 1))
        sizes.append((shard(tmp_path) / f"{state.batch:09d}.json").stat().st_size)
        assert bases(tmp_path) == [base]
    assert whole > 150_000 and max(sizes[:5]) < 5_000 and max(sizes) < whole / 8
    # Half of all steps: a new base, and the former one goes when nothing names it any more.
    save(tmp_path, state, *state.step(draw, 500))
    assert len(bases(tmp_path)) == 2
    save(tmp_path, state, *state.step(draw, 1))
    save(tmp_path, state, *state.step(draw, 1))
    assert len(bases(tmp_path)) == 1 and bases(tmp_path) != [base]
    check(tmp_path, state)


def test_a_state_that_becomes_small_is_written_whole(tmp_path: Path) -> None:
    draw, state = random.Random(2), State(200)
    save(tmp_path, state, *state.step(draw, 0))
    before = state.chunks
    for key in sorted(state.synopses)[10:]:
        del state.synopses[key]
        state.marks.pop(key, None)
    state.batch += 1
    save(tmp_path, state, {}, before - state.chunks)
    assert len(bases(tmp_path)) == 1
    check(tmp_path, state)
    save(tmp_path, state, *state.step(draw, 1))
    assert not bases(tmp_path)
    check(tmp_path, state)


def test_a_batch_that_is_run_again_starts_from_the_base_of_the_one_before(tmp_path: Path) -> None:
    draw, state = random.Random(3), State()
    save(tmp_path, state, *state.step(draw, 0))
    save(tmp_path, state, *state.step(draw, 2))
    for changed in (1, 300, 2):
        lost = state.copy()
        save(tmp_path, lost, *lost.step(draw, changed))
        again = StateFiles(str(tmp_path), 1, 0, state.batch + 1)
        assert again.token == state.token and again.manifest() == state.manifest
    save(tmp_path, state, *state.step(draw, 2))
    check(tmp_path, state)


def test_an_attempt_that_ends_late_leaves_the_base_of_another(tmp_path: Path) -> None:
    """Its manifest lies where that of the same batch lay, with a base of its own."""
    draw, state = random.Random(4), State()
    new, gone = state.step(draw, 0)
    late = StateFiles(str(tmp_path), 1, 0, 0)
    save(tmp_path, state, new, gone)
    other = replace(state.manifest, token="another attempt")
    one, two = state.step(draw, 1)
    running = StateFiles(str(tmp_path), 1, 0, 1)
    late.save(other, new, gone)
    running.save(state.manifest, one, two)
    check(tmp_path, state)
    # What the attempt left goes with the next start, and nothing else.
    sweep(tmp_path)
    check(tmp_path, state)
    save(tmp_path, state, *state.step(draw, 1))
    save(tmp_path, state, *state.step(draw, 1))
    sweep(tmp_path)
    check(tmp_path, state)
    assert len(bases(tmp_path)) == 1


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("warm", [True, False])
def test_a_damaged_base_is_told(tmp_path: Path, how: Callable[[Path, random.Random], None], warm: bool) -> None:
    draw, state = random.Random(5), State()
    save(tmp_path, state, *state.step(draw, 0))
    save(tmp_path, state, *state.step(draw, 1))
    (base,) = bases(tmp_path)
    how(shard(tmp_path) / base, draw)
    if warm and (shard(tmp_path) / base).exists():
        # The process that wrote it goes on without it; what reads it meets it.
        save(tmp_path, state, *state.step(draw, 1))
    with pytest.raises(PenstockError, match=base) as caught:
        if not warm or (shard(tmp_path) / base).exists():
            cold()
        save(tmp_path, state, *state.step(draw, 1))
    assert caught.value.code == "P0605"


def test_a_base_of_another_shard_or_batch_is_told(tmp_path: Path) -> None:
    draw, state = random.Random(6), State()
    save(tmp_path, state, *state.step(draw, 0))
    (base,) = bases(tmp_path)
    text = Folder(tmp_path).read_sealed(shard(tmp_path) / base)
    save(tmp_path, state, *state.step(draw, 400))
    (_, later) = bases(tmp_path)
    shutil.copyfile(shard(tmp_path) / base, shard(tmp_path) / later)
    cold()
    with pytest.raises(PenstockError, match=later) as caught:
        StateFiles(str(tmp_path), 1, 0, 2)
    assert caught.value.code == "P0605"
    # One that is sealed for that place, and lacks what has changed since.
    Folder(tmp_path).write_sealed(shard(tmp_path) / later, text)
    save_gone = json.loads(Folder(tmp_path).read_sealed(shard(tmp_path) / "000000001.json"))
    save_gone["gone"]["synopses"] = ["nobody's"]
    Folder(tmp_path).write_sealed(shard(tmp_path) / "000000001.json", json.dumps(save_gone))
    with pytest.raises(PenstockError, match=later) as caught:
        StateFiles(str(tmp_path), 1, 0, 2)
    assert caught.value.code == "P0605"


def test_a_manifest_that_names_no_base_goes_on_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, state = random.Random(7), State()
    monkeypatch.setattr(chunk_files, "_LEAST_ENTRIES", 10**9)
    save(tmp_path, state, *state.step(draw, 0))
    monkeypatch.undo()
    assert not bases(tmp_path)
    check(tmp_path, state)
    for _ in range(3):
        save(tmp_path, state, *state.step(draw, 1))
        check(tmp_path, state)
    assert bases(tmp_path)


# -- what fails -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[1, 60])
def standing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, State, int]]:
    """A state of two batches, and how many steps the next one changes: few, or so many that there is a new base."""
    state = State(80)
    with replaced_storage(LocalStorage(FailingCalls())):
        for changed in (0, 1):
            save(tmp_path / "whole", state, *state.step(random.Random(changed), changed))
    yield tmp_path, state, request.param


def _restored(root: Path, state: State) -> tuple[Path, State]:
    cold()
    shutil.rmtree(root / "now", ignore_errors=True)
    shutil.copytree(root / "whole", root / "now")
    return root / "now", state.copy()


def _batches(root: Path, state: State, changed: int) -> Iterator[State]:
    """Three batches of a process, each with what it left: the first one writes a base, as it knows none."""
    draw = random.Random(9)
    for number in (1, changed, 1):
        save(root, state, *state.step(draw, number))
        yield state


def _goes_on(root: Path, state: State, changed: int) -> None:
    """The next start finds the state of the last batch that was saved, or of the one before it; and goes on."""
    cold()
    sweep(root)
    reached = StateFiles(str(root), 1, 0, chunk_files.LAST).previous
    assert reached is not None and reached >= 1
    draw = random.Random(9)
    for number in (1, changed, 1):
        if state.batch == reached:
            break
        state.step(draw, number)
    check(root, state)
    for _ in range(2):
        save(root, state, *state.step(random.Random(1), 1))
    check(root, state)
    assert len(bases(root)) <= 2


def test_power_that_goes_at_every_call(standing: tuple[Path, State, int]) -> None:
    _cut_each(*standing, lambda number: (LOSSES[number % len(LOSSES)],))


@pytest.mark.slow
def test_power_that_goes_at_every_call_and_loses_anything(standing: tuple[Path, State, int]) -> None:
    _cut_each(*standing, lambda number: LOSSES)


def _cut_each(folder: Path, state: State, changed: int, losses: Callable[[int], tuple[str, ...]]) -> None:
    (folder / "spare").mkdir()
    calls = PowerCut(folder / "spare")
    root, run = _restored(folder, state)
    with replaced_storage(LocalStorage(calls)):
        list(_batches(root, run, changed))
    assert calls.count >= 20
    for number in range(1, calls.count + 1):
        for how in losses(number):
            root, run = _restored(folder, state)
            shutil.rmtree(folder / "spare")
            (folder / "spare").mkdir()
            cut = PowerCut(folder / "spare", number)
            reached = run.batch
            with replaced_storage(LocalStorage(cut)), pytest.raises(PowerLost):
                for _ in _batches(root, run, changed):
                    reached = run.batch
            cut.lose(how, random.Random(number), [root])
            with replaced_storage(LocalStorage(FailingCalls())):
                newest = StateFiles(str(root), 1, 0, chunk_files.LAST).previous
                assert newest is not None and newest >= reached, "what was saved is there"
                _goes_on(root, state.copy(), changed)


def test_every_call_that_fails(standing: tuple[Path, State, int]) -> None:
    folder, state, changed = standing
    calls = FailingCalls()
    root, run = _restored(folder, state)
    with replaced_storage(LocalStorage(calls)):
        list(_batches(root, run, changed))
    for kind, count in calls.counts.items():
        for number in range(1, count + 1):
            root, run = _restored(folder, state)
            failing = FailingCalls(kind, number)
            with replaced_storage(LocalStorage(failing)):
                try:
                    list(_batches(root, run, changed))
                except PenstockError as error:
                    assert error.code == "P0601"
                except OSError:
                    assert kind == "unlink", "of what nothing names"
            assert failing.failed
            with replaced_storage(LocalStorage(FailingCalls())):
                _goes_on(root, state.copy(), changed)
