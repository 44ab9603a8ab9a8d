"""Join indexes: the stored elements of one join input, found by key and by range."""
