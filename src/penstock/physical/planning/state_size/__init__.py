"""The state that a plan will keep, estimated before it runs."""
