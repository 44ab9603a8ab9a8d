"""What expressions evaluate to: over columns, where they are constant, and over ranges of values."""
