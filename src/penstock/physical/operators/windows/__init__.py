"""Row windows, time windows that slide by rows, negative tuples, samples."""
