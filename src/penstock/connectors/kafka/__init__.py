"""What the Kafka source and the Kafka sink share: the client's settings, offsets, record formats."""
