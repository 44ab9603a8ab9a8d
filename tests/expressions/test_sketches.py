"""Sketches: registers and images are those of the libraries that read them; certain bounds hold on adversarial values,
probable ones at a failure probability of at most 1e-9."""

from __future__ import annotations

import math
import random
import struct
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.expressions.sketches import count_min, dd_sketch, hyperloglog
from penstock.expressions.sketches.murmur import hash128
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local
from penstock.testing.aggregates import sketches as naive

TINY, HUGE = 5e-324, 1.7976931348623157e308
ADVERSARIAL = (
    [0.0, -0.0, TINY, -TINY, 3 * TINY, 2.2250738585072014e-308, 1e-310, HUGE, -HUGE, 1.0, -1.0, math.inf, -math.inf],
    [7.25] * 40,
    [-(1.01**k) for k in range(-200, 200)],
    [(101 / 99) ** k for k in range(-300, 300)],
    [-5e-320, -1e308, 2.0, 2.0 + 2**-51, 4.0, 1e-5, 1e5],
)


def columns() -> list[pa.Array]:
    return [
        pa.array([0, 1, -1, 2**63 - 1, -(2**63), *range(50)], pa.int64()),
        pa.array([0.0, -0.0, math.nan, -math.nan, math.inf, 1e-300, 2.5]),
        pa.array(["", "a", "b" * 7, "c" * 8, "d" * 9, "e" * 15, "f" * 16, "g" * 17, "é" * 40]).slice(1),
        pa.array([b"\xff\x80", b"0123456789abcdef0"]),
    ]


@pytest.mark.parametrize("column", columns(), ids=lambda c: str(c.type))
def test_hashes_are_murmur_as_it_was_published(column: pa.Array) -> None:
    one, two = hash128(column)
    expected = [naive.murmur128(naive.item_bytes(v, column.type)) for v in column.to_pylist()]
    assert list(zip(one.tolist(), two.tolist(), strict=True)) == expected


@pytest.mark.parametrize("lg", [4, 12, 18])
def test_registers_are_those_of_the_library(lg: int) -> None:
    library = hyperloglog.library()
    for column in columns()[:3]:
        sketch = library.hll_sketch(lg, library.tgt_hll_type.HLL_8)
        for value in column.to_pylist():
            sketch.update(value)
        for image in (sketch.serialize_compact(), sketch.serialize_updatable()):
            read = hyperloglog.registers_of(bytes(image))
            ranks = np.zeros(1 << lg, np.int64)
            cells = hyperloglog.cells_of(column, lg)
            np.maximum.at(ranks, cells >> hyperloglog.RANK_BITS, cells & hyperloglog.RANK_MASK)
            assert dict(zip(read.places.tolist(), read.ranks.tolist(), strict=True)) == {
                int(place): int(ranks[place]) for place in np.flatnonzero(ranks)
            }


@pytest.mark.parametrize("kind", ["HLL_4", "HLL_6", "HLL_8"])
@pytest.mark.parametrize("size", [0, 3, 100, 50_000])
def test_images_of_all_kinds_are_read(kind: str, size: int) -> None:
    library = hyperloglog.library()
    sketch = library.hll_sketch(12, getattr(library.tgt_hll_type, kind))
    for value in range(size):
        sketch.update(value)
    cells = hyperloglog.cells_of(pa.array(range(size), pa.int64()), 12)
    assert set(hyperloglog.registers_of(bytes(sketch.serialize_compact())).places.tolist()) == set(
        (cells >> 6).tolist()
    )


def test_golden_images() -> None:
    """Images are the same in every version."""
    cells = hyperloglog.cells_of(pa.array(range(20), pa.int64()), 4)
    ranks = np.zeros(16, np.uint8)
    np.maximum.at(ranks, cells >> 6, (cells & 63).astype(np.uint8))
    image = hyperloglog.image(4, ranks)
    assert image.hex() == GOLDEN_HLL
    assert hyperloglog.deserialized(image).lg_config_k == 4
    shape = count_min.shape_of(0.5, 0.75, 7)
    found = count_min.columns_of(pa.array([1, 1, -5, 2**62], pa.int64()), shape) + 4 * np.arange(2)[:, None]
    counts = np.bincount(found.reshape(-1), minlength=8)
    assert count_min.image(shape, np.arange(8), counts, 4).hex() == GOLDEN_COUNT_MIN
    for broken in (image[:-1], b"", image[:1] + b"\2" + image[2:], image[:2] + b"\3" + image[3:]):
        with pytest.raises(PenstockError, match="not an image"):
            hyperloglog.deserialized(broken)
    for broken in (bytes.fromhex(GOLDEN_COUNT_MIN)[:-8], b"\0" * 4, struct.pack(">iqii", 2, 0, 1, 1)):
        with pytest.raises(PenstockError, match="count-min sketch"):
            count_min.read_image(broken)


@pytest.mark.parametrize(
    ("size", "at", "byte"), [(3, 6, 200), (100, 4, 0), (100, 11, 127), (50_000, 40, 255), (50_000, 36, 9)]
)
def test_an_image_that_would_be_read_beyond_its_end_is_none(size: int, at: int, byte: int) -> None:
    """The library trusts how many coupons and exceptions an image says that it has."""
    library = hyperloglog.library()
    sketch = library.hll_sketch(12, library.tgt_hll_type.HLL_4)
    for value in range(size):
        sketch.update(value)
    for image in map(bytes, (sketch.serialize_compact(), sketch.serialize_updatable())):
        assert hyperloglog.registers_of(image).lg == 12
        with pytest.raises(PenstockError, match="not an image"):
            hyperloglog.registers_of(image[:at] + bytes([byte]) + image[at + 1 :])


GOLDEN_HLL = (
    "0a0107040010000a00000000000000000000000000a420400000000000000000050000000000000004010101030103000100000202000700"
)
GOLDEN_COUNT_MIN = (
    "0000000100000000000000040000000200000004000000005d878bcc0000000051bb9a0c0000000000000003000000000000"
    "0000000000000000000100000000000000000000000000000003000000000000000000000000000000010000000000000000"
)


@pytest.mark.parametrize("accuracy", [1e-6, 1e-3, 0.01, 0.2, 0.5])
@pytest.mark.parametrize("values", ADVERSARIAL, ids=["limits", "equal", "negative", "buckets", "mixed"])
def test_a_bucket_is_near_all_its_values(values: list[float], accuracy: float) -> None:
    column = np.array([v for v in values if math.isfinite(v)])
    for value, found in zip(column, dd_sketch.values_of(dd_sketch.buckets(column, accuracy), accuracy), strict=True):
        # A result below the least normal number is rounded by up to half a unit.
        allowed = Fraction(accuracy) * abs(Fraction(float(value))) + Fraction(TINY) / 2
        assert abs(Fraction(float(found)) - Fraction(float(value))) <= allowed
    assert np.isnan(dd_sketch.values_of(dd_sketch.buckets(np.array([math.nan]), accuracy), accuracy)).all()
    ends = np.array([math.inf, -math.inf, 0.0])
    assert (dd_sketch.values_of(dd_sketch.buckets(ends, accuracy), accuracy) == ends).all()


def answers(items: str, values: pa.Array) -> list[dict[str, object]]:
    """Return the rows of a query over windows of 8 s by 2 s, with the values of each as `v`."""
    draw = random.Random(5)
    rows = pa.table({"v": values, "ts": pa.array(sorted(draw.randint(0, 30) for _ in values), pa.int32())})
    kind = {"double": "DOUBLE", "int64": "BIGINT"}[str(values.type)]
    script = f"CREATE STREAM S (v {kind}, ts INT) FROM MEMORY () TIMESTAMP BY ts; CREATE QUERY q AS RSTREAM(SELECT"
    queries = bind_script(f"{script} ARRAY_AGG(v) AS all, {items} FROM S [RANGE 8 SECONDS SLIDE 2 SECONDS]);").queries
    return [row for row in run_local(queries, {"S": rows}).tables["q"].to_pylist() if row["all"]]


@pytest.mark.parametrize("values", ADVERSARIAL, ids=["limits", "equal", "negative", "buckets", "mixed"])
def test_certain_bounds_hold(values: list[float]) -> None:
    items = []
    for n, q in enumerate((0, 0.1, 0.5, 0.99, 1)):
        for name, call in (("s", f"APPROX_QUANTILE(v, {q}, 0.05)"), ("p", f"APPROX_PERCENTILE(v, {q}, 5)")):
            items += [
                f"{call} AS {name}{n}",
                f"LOWER_BOUND({call}) AS l{name}{n}",
                f"UPPER_BOUND({call}) AS u{name}{n}",
            ]
    for row in answers(", ".join(items), pa.array(values * 3)):
        ordered = row["all"]
        assert isinstance(ordered, list)
        size = len(ordered)
        for n, q in enumerate((Fraction(0), Fraction(1, 10), Fraction(1, 2), Fraction(99, 100), Fraction(1))):
            exact = ordered[math.floor(q * (size - 1))]
            assert row[f"ls{n}"] <= exact <= row[f"us{n}"]  # type: ignore[operator]
            rank = max(1, math.ceil(q * size))
            assert row[f"lp{n}"] <= ordered[rank - 1] <= row[f"up{n}"]  # type: ignore[operator]
            found = row[f"p{n}"]
            ranks = [i for i, value in enumerate(ordered, 1) if value == found]
            assert min(ranks) - size / 5 <= rank <= max(ranks) + size / 5


def test_count_min_is_never_below() -> None:
    draw = random.Random(1)
    values = pa.array([int(draw.paretovariate(0.7)) % 500 for _ in range(3000)], pa.int64())
    for row in answers("COUNT_MIN_SKETCH(v, 0.05, 0.99) AS s", values):
        sketch = count_min.read_image(row["s"])  # type: ignore[arg-type]
        every = row["all"]
        assert isinstance(every, list) and sketch.total == len(every)
        different = sorted(set(every))
        counts = sketch.counts(pa.array(different, pa.int64())).tolist()
        assert all(found >= every.count(value) for value, found in zip(different, counts, strict=True))
        too_large = sum(found > every.count(v) + 0.05 * len(every) for v, found in zip(different, counts, strict=True))
        assert too_large <= 0.05 * len(different) + 10


@pytest.mark.parametrize(("lg", "near"), [(4, 0.5), (8, 0.15), (12, 0.05), (14, 0.01)])
def test_bounds_of_distinct_counts_are_near_those_of_the_library(lg: int, near: float) -> None:
    """The library takes the quantiles of the error from tables that were measured, which are not symmetric; with many
    registers they are those of the normal distribution. near: the greatest difference of deviations, as a share."""
    library = hyperloglog.library()
    normal = {1: 0.6826894921370859, 2: 0.9544997361036416, 3: 0.9973002039367398}
    sketch = f"HLL_SKETCH_AGG(k, {lg})"
    estimate = f"HLL_SKETCH_ESTIMATE({sketch})"
    bounds = ", ".join(
        f"LOWER_BOUND({estimate}, {p}) AS l{z}, UPPER_BOUND({estimate}, {p}) AS u{z}" for z, p in normal.items()
    )
    script = "CREATE STREAM s (ts INT, g BIGINT, k BIGINT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
    script += f"CREATE QUERY q AS SELECT g, {sketch} AS image, {estimate} AS e, {bounds} FROM s GROUP BY g;"
    g = np.repeat(np.arange(3), [300, 3000, 60_000])
    given = pa.table({"ts": pa.array(np.ones(len(g)), pa.int32()), "g": g, "k": np.arange(len(g)) * 7919})
    rows = run_local(bind_script(script).queries, {"s": given}, drain=False).tables["q"].to_pylist()
    assert [row["g"] for row in rows] == [0, 1, 2]
    for row in rows:
        image, hit = library.hll_sketch.deserialize(row["image"]), len(hyperloglog.registers_of(row["image"]).places)
        for z in normal:
            least, most = image.get_lower_bound(z), image.get_upper_bound(z)
            assert row["e"] / row[f"u{z}"] - 1 == pytest.approx(image.get_estimate() / most - 1, rel=near)
            # The library bounds a count from below by the registers that are not 0 also.
            if least > hit:
                assert row["e"] / row[f"l{z}"] - 1 == pytest.approx(image.get_estimate() / least - 1, rel=near)


def test_the_error_of_distinct_counts_is_the_stated_one() -> None:
    """Over 200 seeds, the mean of z is within 6.2 standard errors and the variance within χ² bounds, each at 1e-9."""
    lg, size, seeds = 10, 20_000, 200
    error = hyperloglog.standard_error(lg)
    draw = np.random.default_rng(11)
    z = []
    for _ in range(seeds):
        cells = hyperloglog.cells_of(pa.array(draw.integers(0, 2**62, size)), lg)
        ranks = np.zeros(1 << lg, np.int64)
        np.maximum.at(ranks, cells >> 6, cells & 63)
        sums = [np.array([part.sum()]) for part in hyperloglog.rank_sums(ranks)]
        z.append((hyperloglog.estimates(lg, *sums)[0] / size - 1) / error)
    assert abs(np.mean(z)) * math.sqrt(seeds) < 6.2
    # Quantiles of χ² with 200 degrees at 1e-9 and 1 - 1e-9: 101.4 and 343.9.
    assert 101.4 / seeds < np.mean(np.square(z)) < 343.9 / seeds
