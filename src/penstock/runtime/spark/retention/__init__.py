"""RETAIN: the elements that streams have accepted, kept for queries that begin later."""
