"""A server under queries that would take all there is (`python -m benchmarks.bad_queries`)."""
