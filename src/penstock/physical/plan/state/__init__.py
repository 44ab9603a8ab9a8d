"""What operators store, estimated before the run."""
