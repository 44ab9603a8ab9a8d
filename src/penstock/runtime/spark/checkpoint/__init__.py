"""What a run keeps on disk, and how a start continues from it."""
