"""What readers do with the promises of streams, one rule a file (docs/promises.md).

These rules are carried out when a query is bound, by its text alone and never by cost; what they decide stands in the
operators of `algebra/nodes/promised.py`. Each gives the law that it rests on and a counter-example where the law ends.
"""
