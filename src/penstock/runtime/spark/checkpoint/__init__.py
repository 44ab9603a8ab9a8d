"""What a run keeps on disk: epochs, the offsets of rounds, state, and marks; its lock and its place."""
