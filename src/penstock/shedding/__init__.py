"""Load shedding that knows of coalescing [tls III]: policies, the machine that carries them out, and accuracy.

All of it works on arrays of numbers and knows nothing of operators, plans or queries.
"""

from __future__ import annotations
