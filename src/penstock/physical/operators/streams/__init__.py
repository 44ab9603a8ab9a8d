"""Relation to stream: ISTREAM, DSTREAM, RSTREAM, changes, individual results."""
