"""HyperLogLog: the register and rank of a value, the estimate, and images that Apache DataSketches reads.

The registers are those of the library: register = the low bits of the first half of the hash, rank = 1 + the leading
zeros of the second half, at most 63. A cell is register · 64 + rank. The estimate depends on the registers through
three numbers alone, which are sums over registers and so are kept as accumulators; the library's composite estimator
computes it from an image whose header has these numbers.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrays import Bytes, UInt64s
from penstock.compilation import loop
from penstock.errors import PenstockError
from penstock.expressions.sketches.murmur import hash128

Int64s = npt.NDArray[np.int64]

#: log2 of the number of registers: of images, and of APPROX_COUNT_DISTINCT.
LEAST_LG, MOST_LG = 4, 21
DEFAULT_LG = 12
#: Ranks below this are summed at one scale, the others at another, so that both sums are exact integers.
SPLIT = 32
#: Bits of the rank in a cell.
RANK_BITS = 6
RANK_MASK = (1 << RANK_BITS) - 1
_HEADER, _SUMS_AT = 40, 16
_OUT_OF_ORDER = 16
_COMPACT = 8
#: Images of this mode have registers; the others lists of coupons.
_REGISTER_MODE = 2
#: log2 of the length of a list of coupons, and of the shortest set of them.
_LIST_LG, _SET_LG = 3, 5


def registers_for(rsd: float) -> int:
    """Return log2 of the least number of registers m with 1.04/√m ≤ rsd."""
    lg = LEAST_LG
    while standard_error(lg) > rsd:
        lg += 1
    return lg


def standard_error(lg: int) -> float:
    """Return the relative standard error of an estimate from 2**lg registers."""
    return 1.04 / math.sqrt(1 << lg)


def hit(lg: int, values: float) -> float:
    """Return how many of 2**lg registers so many different values are expected to fall into."""
    return -math.expm1(-values / (1 << lg)) * (1 << lg)


def cells_of(column: pa.Array, lg: int) -> Int64s:
    """Return the cell of every value; arbitrary where it is NULL."""
    one, two = hash128(column)
    cells: Int64s = _cells(one, two, lg)
    return cells


@loop
def _cells(one: UInt64s, two: UInt64s, lg: int) -> Int64s:
    cells = np.empty(one.shape[0], np.int64)
    mask = np.uint64((1 << lg) - 1)
    for i in range(one.shape[0]):
        zeros, word = 0, two[i] | np.uint64(2)  # at most 62
        for step in (32, 16, 8, 4, 2, 1):
            if word >> np.uint64(64 - step) == 0:
                word <<= np.uint64(step)
                zeros += step
        cells[i] = np.int64(one[i] & mask) << RANK_BITS | (zeros + 1)
    return cells


def rank_sums(ranks: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return what registers with these ranks add to: the registers that are not 0; the sum of 2**(31 - rank) over
    ranks up to 31; and of 2**(63 - rank) over the others. Rank 0 adds nothing."""
    hit = (ranks > 0).astype(np.int64)
    low = np.where((ranks > 0) & (ranks < SPLIT), np.int64(1) << np.clip(31 - ranks, 0, 31), 0)
    high = np.where(ranks >= SPLIT, np.int64(1) << np.clip(63 - ranks, 0, 31), 0)
    return hit, low, high


def estimates(lg: int, hit: Int64s, low: Int64s, high: Int64s) -> npt.NDArray[np.float64]:
    """Return the library's composite estimate for registers with these sums (`rank_sums`)."""
    sums = np.stack([np.asarray(hit), np.asarray(low), np.asarray(high)], axis=1)
    different, which = np.unique(sums, axis=0, return_inverse=True)
    found = np.array([_estimate(lg, *row) for row in different.tolist()], np.float64)
    return found[which.reshape(-1)]


def _estimate(lg: int, hit: int, low: int, high: int) -> float:
    if not hit:
        return 0.0
    empty = (1 << lg) - hit
    image = _scratch(lg)
    image[16:40] = struct.pack("<ddII", empty + low / 2.0**31, high / 2.0**63, empty, 0)
    return float(library().hll_sketch.deserialize(bytes(image)).get_estimate())


@cache
def _scratch(lg: int) -> bytearray:
    return bytearray(_header(lg) + bytes(1 << lg))


def _header(lg: int) -> bytes:
    # Preamble of 10 words, format 1, family 7, registers, flags, least rank, mode: registers of 8 bits.
    return bytes([10, 1, 7, lg, 0, _OUT_OF_ORDER, 0, 10]) + bytes(_HEADER - 8)


def images(lg: int, cells: Int64s, offsets: Int64s) -> npt.NDArray[np.uint8]:
    """Return (image, byte) the HLL_8 images with 2**lg registers of the cells in [offsets[i], offsets[i + 1])."""
    made = np.zeros((len(offsets) - 1, _HEADER + (1 << lg)), np.uint8)
    hit, low, high = _fill_registers(made[:, _HEADER:], cells, offsets)
    made[:, :_SUMS_AT] = np.frombuffer(_header(lg), np.uint8, _SUMS_AT)
    # As the library keeps them: Σ 2^-rank below rank 32, where an empty register has rank 0, and above; empty ones.
    empty = (1 << lg) - hit
    sums = np.zeros(len(made), [("low", "<f8"), ("high", "<f8"), ("empty", "<u4"), ("exceptions", "<u4")])
    sums["low"], sums["high"], sums["empty"] = empty + low / 2.0**31, high / 2.0**63, empty
    made[:, _SUMS_AT:_HEADER] = sums.view(np.uint8).reshape(len(made), _HEADER - _SUMS_AT)
    return made


@loop
def _fill_registers(ranks: Bytes, cells: Int64s, offsets: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Write the greatest rank of every register into `ranks` (image, register); return their sums (`rank_sums`)."""
    count = ranks.shape[0]
    hit, low, high = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)
    for i in range(count):
        for at in range(offsets[i], offsets[i + 1]):
            register, rank = cells[at] >> RANK_BITS, cells[at] & RANK_MASK
            if rank > ranks[i, register]:
                ranks[i, register] = rank
        for register in range(ranks.shape[1]):
            rank = np.int64(ranks[i, register])
            if rank > 0:
                hit[i] += 1
                if rank < SPLIT:
                    low[i] += np.int64(1) << (31 - rank)
                else:
                    high[i] += np.int64(1) << (63 - rank)
    return hit, low, high


def image(lg: int, ranks: npt.NDArray[np.uint8]) -> bytes:
    """Return the HLL_8 image of the registers `ranks`."""
    places = np.flatnonzero(ranks)
    return images(lg, places << RANK_BITS | ranks[places], np.array([0, len(places)])).tobytes()


@dataclass(frozen=True)
class Registers:
    """The registers of an image: those that are not 0, and their ranks."""

    lg: int
    places: Int64s
    ranks: Int64s

    @property
    def cells(self) -> Int64s:
        return self.places << RANK_BITS | self.ranks


def registers_of(data: bytes) -> Registers:
    """Return the registers of an image of any mode. Raises PenstockError P0203: it is not an image."""
    return _registers(deserialized(data))


def _registers(sketch: Any) -> Registers:
    lg = int(sketch.lg_config_k)
    union = library().hll_union(lg)
    union.update(sketch)
    body = union.get_result(library().tgt_hll_type.HLL_8).serialize_updatable()
    if body[7] & 3 == _REGISTER_MODE:
        ranks = np.frombuffer(body, np.uint8, 1 << lg, _HEADER).astype(np.int64)
        places = np.flatnonzero(ranks)
        return Registers(lg, places, ranks[places])
    # A list or a set of coupons: 26 bits of the hash, then the rank.
    start = 8 if body[7] & 3 == 0 else 12
    coupons = np.frombuffer(body, np.uint32, (len(body) - start) // 4, start).astype(np.int64)
    coupons = coupons[coupons != 0]
    whole = np.zeros(1 << lg, np.int64)
    np.maximum.at(whole, coupons & ((1 << lg) - 1), coupons >> 26)
    places = np.flatnonzero(whole)
    return Registers(lg, places, whole[places])


def deserialized(data: bytes) -> Any:
    """Return the library's sketch of an image. Raises PenstockError P0203: it is none."""
    if not _is_image(data):
        raise PenstockError("P0203", "not an image of an HLL sketch of format 1")
    try:
        sketch = library().hll_sketch.deserialize(data)
    except Exception as error:
        raise PenstockError("P0203", f"not an image of an HLL sketch: {error}") from error
    if data[7] & 3 == _REGISTER_MODE and not _sums_agree(data, _registers(sketch)):
        raise PenstockError(
            "P0203", "not an image of an HLL sketch: the sums in its header are not those of its registers"
        )
    return sketch


def _sums_agree(data: bytes, found: Registers) -> bool:
    """Return whether the header of an image has the sums of its registers, Σ2^-rank below rank 32 and above, within
    rounding; both are part of an estimate, and no other check of an image shows damage."""
    low = found.ranks < SPLIT
    parts = np.ldexp(1.0, -found.ranks)
    sums = (1 << found.lg) - len(found.ranks) + float(parts[low].sum()), float(parts[~low].sum())
    stored = np.frombuffer(data, np.float64, 2, _SUMS_AT)
    return bool(np.allclose(stored, sums, rtol=1e-9, atol=1e-12))


def _is_image(data: bytes) -> bool:
    """Return whether the library may read `data`: it writes beyond its memory where a header counts more coupons than
    there are."""
    if len(data) < 8 or data[1] != 1 or data[2] != 7 or not LEAST_LG <= data[3] <= MOST_LG:
        return False
    mode, kind = data[7] & 3, data[7] >> 2
    if mode == 3 or kind > 2:
        return False
    if mode == 0:
        return data[0] == 2 and _holds_coupons(data, 8, data[6], _LIST_LG)
    if mode == 1:
        in_range = len(data) >= 12 and _SET_LG <= data[4] <= MOST_LG
        return data[0] == 3 and in_range and _holds_coupons(data, 12, _whole(data, 8), data[4])
    # 4 bits a register and a table of exceptions, 6 bits, or 8.
    sizes = (1 << data[3] >> 1, (3 << data[3] >> 2) + 1, 1 << data[3])
    body = _HEADER + sizes[kind]
    if data[0] != 10 or len(data) < body:
        return False
    return kind > 0 or _has_exceptions(data, body)


def _has_exceptions(data: bytes, body: int) -> bool:
    """Return whether an image of 4 bits a register, which ends at `body`, has an exception for each register that is
    marked as one: the library looks for it in a table that may not be there."""
    ranks = np.frombuffer(data, np.uint8, body - _HEADER, _HEADER)
    marked = int(np.count_nonzero(ranks & 15 == 15) + np.count_nonzero(ranks >> 4 == 15))
    if _whole(data, _HEADER - 4) != marked:
        return False
    return marked == 0 or (data[4] <= MOST_LG and _holds_coupons(data, body, marked, data[4]))


def _holds_coupons(data: bytes, start: int, count: int, lg: int) -> bool:
    """Return whether `count` coupons, in an array of 2**lg where the image is not compact, fit into the data from
    `start`."""
    stored = count if data[5] & _COMPACT else 1 << lg
    return 0 <= count <= 1 << lg and len(data) >= start + 4 * stored


def _whole(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<i", data, at)[0])


@cache
def library() -> ModuleType:
    """Return Apache DataSketches, which is imported when a query with such a sketch first needs it."""
    import datasketches

    module: ModuleType = datasketches
    return module
