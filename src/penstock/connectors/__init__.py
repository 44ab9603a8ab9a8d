"""Data in and out: sources, sinks and dead letters [semantics 3]. See `contract`."""
