"""Pieces of sessions and stretches that the elements of a batch have, before rows are exchanged."""

from __future__ import annotations

from penstock.arrays import Int64s
from penstock.physical.kernels.compiling import compiled


@compiled(reads="codes order ts reach")
def cut_pieces(
    codes: Int64s,
    order: Int64s,
    ts: Int64s,
    reach: Int64s,
    same_tick: bool,
    latest: Int64s,
    pieces: Int64s,
    firsts: Int64s,
    ends: Int64s,
) -> int:
    """Number the pieces of elements in the order of time; return how many there are.

    Args:
        same_tick: whether only elements of one tick are a piece.
        latest: by code, the last piece, -1 at first.
        pieces: the piece of each element.
        firsts, ends: the first element and the end of each piece.
    """
    count = 0
    for k in range(order.shape[0]):
        i = order[k]
        piece = latest[codes[i]]
        if piece < 0 or ts[i] > (ts[firsts[piece]] if same_tick else ends[piece]):
            piece = count
            latest[codes[i]] = piece
            firsts[piece], ends[piece] = i, reach[i]
            count += 1
        else:
            ends[piece] = max(ends[piece], reach[i])
        pieces[i] = piece
    return count
