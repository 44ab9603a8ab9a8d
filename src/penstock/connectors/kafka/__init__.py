"""Shared by the Kafka source and the Kafka sink: the client's settings, offsets, record formats."""
