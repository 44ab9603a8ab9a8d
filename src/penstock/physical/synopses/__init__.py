"""State of stateful operators: queues by expiration, keyed tables and join indexes, kept as immutable chunks."""
