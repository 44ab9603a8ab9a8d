"""What streams promise, carried out by definition over whole inputs [docs/promises.md].

A closing is computed of all elements of the declared stream that were accepted, whatever a query selects
(`closings.py`); `held.py` has what operators do by it. Nothing here is incremental: each function goes over the whole
input again.
"""
