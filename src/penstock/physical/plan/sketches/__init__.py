"""What sketches store, estimated before the run."""
