"""The state that a plan will store, estimated before it runs."""
