"""Images of HLL sketches that Spark and DataSketches have written: what they hold is read, by our functions and in a
union, and what is cut off or damaged is refused with P0203."""

from __future__ import annotations

from pathlib import Path

import datasketches
import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import PenstockError, ScriptErrors
from penstock.expressions.sketches import hyperloglog
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local

LINES = [
    line.split()
    for line in (Path(__file__).parent / "golden_hll_images.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
#: (who wrote it, lgK, how many values, estimate, image)
IMAGES = [(by, int(lg), int(count), int(estimate), bytes.fromhex(data)) for by, lg, count, estimate, data in LINES]
#: Bytes of the header that say what follows: words of the preamble, format, family, lgK, length of a list, mode.
HEADER = (0, 1, 2, 3, 7)


def greatest_ranks(lg: int, count: int) -> dict[int, int]:
    """Return the rank of each register that is not 0, of the values 0, 1, .., count - 1."""
    ranks: dict[int, int] = {}
    for cell in hyperloglog.cells_of(pa.array(range(count), pa.int64()), lg).tolist():
        ranks[cell >> 6] = max(ranks.get(cell >> 6, 0), cell & 63)
    return ranks


@pytest.mark.parametrize(("by", "lg", "count", "estimate", "image"), IMAGES, ids=[" ".join(x[:3]) for x in LINES])
def test_an_image_holds_the_registers_of_its_values(by: str, lg: int, count: int, estimate: int, image: bytes) -> None:
    found = hyperloglog.registers_of(image)
    assert found.lg == lg
    assert dict(zip(found.places.tolist(), found.ranks.tolist(), strict=True)) == greatest_ranks(lg, count)
    assert round(hyperloglog.deserialized(image).get_estimate()) == estimate


@pytest.mark.parametrize(("by", "lg", "count", "estimate", "image"), IMAGES, ids=[" ".join(x[:3]) for x in LINES])
def test_a_damaged_image_is_refused_or_read_within_its_bytes(
    by: str, lg: int, count: int, estimate: int, image: bytes
) -> None:
    shortest = _needed(image)
    for length in {0, 1, 7, 8, shortest // 2, shortest - 1} & set(range(shortest)):
        with pytest.raises(PenstockError) as caught:
            hyperloglog.registers_of(image[:length])
        assert caught.value.code == "P0203", length
    for at in HEADER:
        damaged = image[:at] + b"\xff" + image[at + 1 :]
        with pytest.raises(PenstockError) as caught:
            hyperloglog.registers_of(damaged)
        assert caught.value.code == "P0203", at


def _needed(image: bytes) -> int:
    """Return how many bytes are read: an empty image needs its header alone."""
    for length in range(8, len(image)):
        if hyperloglog._is_image(image[:length]):
            return length
    return len(image)


def test_images_of_others_in_queries() -> None:
    """A union has as many registers as the smallest image; what is no image is left out, or NULL; in a constant it is
    an error."""
    declared = "CREATE STREAM s (ts INT, b BINARY) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
    select = "SELECT HLL_SKETCH_ESTIMATE(HLL_UNION_AGG(b)) AS n, COUNT(HLL_SKETCH_ESTIMATE(b)) AS images FROM s"
    images = [image for _, lg, count, _, image in IMAGES if lg == 8 and count <= 300]
    rows = [*images, b"", images[-1][:20], None]
    given = pa.table({"ts": pa.array(np.ones(len(rows)), pa.int32()), "b": pa.array(rows, pa.binary())})
    (row,) = (
        run_local(bind_script(f"{declared}CREATE QUERY q AS {select};").queries, {"s": given}).tables["q"].to_pylist()
    )
    assert row["images"] == len(images) and 240 < row["n"] < 360
    for text in ("X'00'", f"X'{images[-1][:20].hex()}'"):
        with pytest.raises(ScriptErrors) as caught:
            bind_script(f"{declared}CREATE QUERY q AS SELECT HLL_SKETCH_ESTIMATE({text}) AS n FROM s;")
        assert caught.value.code == "P0203" and caught.value.errors[0].hint


@pytest.mark.parametrize("sum_of_ranks", ["ffffffffffffff00", "0000000000000080"])
def test_a_header_that_says_an_impossible_count_is_no_image(sum_of_ranks: str) -> None:
    """The library estimates from sums in its header: what is infinite or beyond BIGINT is NULL, no failure."""
    declared = "CREATE STREAM s (ts INT, b BINARY) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
    image = hyperloglog.image(4, np.full(16, 3, np.uint8))
    damaged = image[:16] + bytes.fromhex(sum_of_ranks) + image[24:]
    select = "SELECT COUNT(*) AS n, COUNT(HLL_SKETCH_ESTIMATE(b)) AS read FROM s"
    given = pa.table({"ts": pa.array([1, 1], pa.int32()), "b": pa.array([image, damaged], pa.binary())})
    query = bind_script(f"{declared}CREATE QUERY q AS {select};").queries
    assert run_local(query, {"s": given}).tables["q"].to_pylist()[-1].items() >= {"n": 2, "read": 1}.items()
    with pytest.raises(ScriptErrors) as caught:
        bind_script(f"{declared}CREATE QUERY q AS SELECT HLL_SKETCH_ESTIMATE(X'{damaged.hex()}') AS n FROM s;")
    assert caught.value.code == "P0203" and caught.value.errors[0].hint


@pytest.mark.parametrize("kind", ["HLL_4", "HLL_6", "HLL_8"])
def test_a_header_with_other_sums_than_its_registers_is_no_image(kind: str) -> None:
    """So it is left out of a union, as of an estimate: the number of registers, the least rank, the sums."""
    sketch = datasketches.hll_sketch(8, getattr(datasketches.tgt_hll_type, kind))
    for value in range(3_000):
        sketch.update(value)
    image = sketch.serialize_compact()
    assert hyperloglog.registers_of(image).lg == 8
    for at, byte in ((3, 7), (21, 0x81), (22, 7), (23, 0x41), (31, 0x40), *(((6, 5),) if kind == "HLL_4" else ())):
        damaged = image[:at] + bytes([image[at] ^ byte]) + image[at + 1 :]
        for read in (hyperloglog.registers_of, hyperloglog.deserialized):
            with pytest.raises(PenstockError) as caught:
                read(damaged)
            assert caught.value.code == "P0203", at
