"""What operators have in common: their contract, and buffers of rows that wait."""
