"""How the loops of the machine are compiled."""

from __future__ import annotations

import numba as nb

#: As `numba.njit`, without counting references. A compiled function otherwise counts, atomically, those to every array
#: it is passed, at each call: more than half of the time of an arrival. Neither it nor what it calls may make arrays.
loop = nb.njit(cache=True, _nrt=False)
