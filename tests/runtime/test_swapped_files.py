"""A checksum binds a file to its place: files of a checkpoint that are swapped, or replaced by older copies, are told,
or do not matter. Nothing else comes of them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import InlineRun, cold, write_files

from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.storage.seals import sealed, unsealed

SPARED = {"dead-letters", "job.pickle"}


def script(tmp: Path, out: str = "out") -> str:
    """Two sources and two stages, of which each has files of every kind."""
    declared = "".join(
        f"""CREATE STREAM {name} (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp / name}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND;"""
        for name in ("a", "b")
    )
    return f"""SET max_batch_bytes = 1; SET shards = 2; {declared}
    CREATE RELATION R (k INT, name BIGINT) FROM MEMORY (); INSERT INTO R VALUES (0, 10), (1, 11), (2, 12);
    CREATE RELATION Q (k INT, name BIGINT) FROM MEMORY (); INSERT INTO Q VALUES (0, 7), (1, 8), (2, 9);
    CREATE QUERY sums INTO FILES (path '{tmp / out / "sums"}') AS
      SELECT x, COUNT(*) AS n FROM (SELECT k, SUM(x) AS x FROM a [RANGE 45 SECONDS] GROUP BY k) AS s GROUP BY x;
    CREATE QUERY named INTO FILES (path '{tmp / out / "named"}') AS
      SELECT DISTINCT R.name, Q.name AS other, b.x FROM b [RANGE 25 SECONDS], R, Q
      WHERE b.k = R.k AND b.k = Q.k;"""


def rows(tmp: Path, out: str) -> list[list[dict[str, object]]]:
    found = [read_result(str(tmp / out / name)).to_pylist() for name in ("sums", "named")]
    return [sorted(one, key=lambda row: tuple(map(str, row.values()))) for one in found]


@pytest.fixture
def calm(tmp_path: Path) -> Path:
    write_files(tmp_path / "a", range(4))
    write_files(tmp_path / "b", range(4))
    for path in (tmp_path / "b").iterdir():
        table = pq.read_table(path)
        pq.write_table(table.set_column(2, "x", pa.array([3 * v for v in table["x"].to_pylist()])), path)
    InlineRun(script(tmp_path, "calm"), tmp_path / "calm-checkpoint").run()
    cold()
    return tmp_path


def files_of(checkpoint: Path) -> list[Path]:
    """Relative paths of what must not be taken for another."""
    root = checkpoint / "penstock"
    found = (p.relative_to(root) for p in root.rglob("*") if p.is_file())
    return sorted(p for p in found if p.parts[0] not in SPARED)


def outcome(tmp: Path, whole: Path, meddle: Callable[[Path], None]) -> str:
    """The code with which a run over a copy of the checkpoint `whole` stops, empty where it comes to the right end."""
    for name, there in (("checkpoint", whole), ("out", whole.with_name(f"{whole.name}-out"))):
        shutil.rmtree(tmp / name, ignore_errors=True)
        shutil.copytree(there, tmp / name)
    before = rows(tmp, "out")
    meddle(tmp / "checkpoint" / "penstock")
    cold()
    runs: list[InlineRun] = []
    try:
        runs.append(InlineRun(script(tmp), tmp / "checkpoint"))
        runs[0].run()
    except PenstockError as error:
        for run in runs:
            run.rounds.stop()
        now = rows(tmp, "out")
        assert all(row in found for former, found in zip(before, now, strict=True) for row in former)
        return error.code
    assert runs[0].ended
    assert rows(tmp, "out") == rows(tmp, "calm")
    return ""


def paused(tmp: Path, batches: int, name: str = "whole", crash: str | None = "sinks") -> Path:
    """A copy of a run that died. It runs where its copies will: what is read of a script is known by its place."""
    for place in ("checkpoint", "out"):
        shutil.rmtree(tmp / place, ignore_errors=True)
    InlineRun(script(tmp), tmp / "checkpoint").run(batches, crash)
    shutil.copytree(tmp / "checkpoint", tmp / name)
    shutil.copytree(tmp / "out", tmp / f"{name}-out")
    cold()
    return tmp / name


def swap(one: Path, other: Path) -> Callable[[Path], None]:
    def meddle(root: Path) -> None:
        first, second = (root / one).read_bytes(), (root / other).read_bytes()
        (root / one).write_bytes(second)
        (root / other).write_bytes(first)

    return meddle


def kind(path: Path) -> tuple[str, str]:
    return (path.parts[0] if len(path.parts) > 1 else "mark", path.suffix)


def pairs(whole: Path) -> Iterator[tuple[Path, Path]]:
    for one, other in combinations(files_of(whole), 2):
        same = (whole / "penstock" / one).read_bytes() == (whole / "penstock" / other).read_bytes()
        if kind(one) == kind(other) and not same:
            yield one, other


def swapped(tmp: Path, chosen: Callable[[list[tuple[Path, Path]]], list[tuple[Path, Path]]]) -> Counter[str]:
    whole = paused(tmp, 3)
    found: Counter[str] = Counter()
    for one, other in chosen(list(pairs(whole))):
        code = outcome(tmp, whole, swap(one, other))
        assert code in ("", "P0605"), (one, other, code)
        found[f"{kind(one)[0]}{kind(one)[1]} {code or 'identical'}"] += 1
    return found


def test_swapped_files_of_every_kind(calm: Path) -> None:
    def one_of_a_kind(all_: list[tuple[Path, Path]]) -> list[tuple[Path, Path]]:
        return list({kind(pair[0]): pair for pair in all_}.values())

    found = swapped(calm, one_of_a_kind)
    assert {key.split()[0] for key in found} >= {
        "mark.json",
        "rounds.json",
        "seen.json",
        "splits.json",
        "spool.crc",
        "state.arrow",
        "state.json",
        "tables.arrow",
        "tables.crc",
    }
    told = ("state.json", "state.arrow", "splits.json", "spool.arrow", "spool.crc", "tables.arrow", "tables.crc")
    assert {kind: found[f"{kind} P0605"] for kind in told} == dict.fromkeys(told, 1)


@pytest.mark.slow
def test_every_pair_of_files_of_a_kind(calm: Path) -> None:
    found = swapped(calm, lambda all_: all_)
    print(dict(found), sum(found.values()))
    assert sum(found.values()) >= 100


def older(tmp: Path, chosen: Callable[[Path], bool]) -> Counter[str]:
    """Each file as it was one or two batches before."""
    whole = paused(tmp, 3)
    found: Counter[str] = Counter()
    for batches in (1, 2):
        earlier = paused(tmp, batches, f"earlier{batches}", None)
        # The same run: what is sealed tells its name.
        for path in files_of(earlier):
            _rename_run(earlier / "penstock", path, whole / "penstock")
        for path in files_of(earlier):
            former, now = earlier / "penstock" / path, whole / "penstock" / path
            if not now.exists() or former.read_bytes() == now.read_bytes() or not chosen(path):
                continue
            code = outcome(tmp, whole, lambda root, p=path, f=former: shutil.copyfile(f, root / p))  # type: ignore[misc]
            assert code in ("", "P0605"), (path, batches, code)
            found[f"{path} {code or 'identical'}"] += 1
    return found


def _rename_run(root: Path, path: Path, whole: Path) -> None:
    """Seal a file of one run as one of another."""
    names = [unsealed((place / "run.json").read_bytes(), "run.json").strip('"') for place in (root, whole)]
    data = (root / path).read_bytes()
    try:
        text = unsealed(data, f"{names[0]} {path.as_posix()}")
    except ValueError:
        return
    (root / path).write_bytes(sealed(text, f"{names[1]} {path.as_posix()}"))


def test_older_copies_of_marks(calm: Path) -> None:
    found = older(calm, lambda path: len(path.parts) == 1)
    assert {key.split()[0] for key in found} >= {"delivered.json", "offset.json"}
    assert any(key.endswith("P0605") for key in found), found


def test_a_file_of_another_run(calm: Path) -> None:
    """Same script, same data, same place: its state was made in other batches."""
    whole = paused(calm, 3)
    other = paused(calm, 2, "other")
    for path in ("state/1/0/000000002.json", "delivered.json", "epochs/0000.json", "splits/a/000000000000.json"):
        code = outcome(calm, whole, lambda root, p=path: shutil.copyfile(other / "penstock" / p, root / p))  # type: ignore[misc]
        assert code == "P0605", path


def test_a_seal_tells_the_place() -> None:
    data = sealed("text\n", "run state/1/0/000000004.json")
    assert unsealed(data, "run state/1/0/000000004.json") == "text\n"
    with pytest.raises(ValueError, match=r"as run state/1/0/000000004\.json"):
        unsealed(data, "run state/1/0/000000005.json")
    for position in range(len(data) - 1):
        changed = bytearray(data)
        changed[position] ^= 1
        with pytest.raises(ValueError, match="checksum"):
            unsealed(bytes(changed), "run state/1/0/000000004.json")
