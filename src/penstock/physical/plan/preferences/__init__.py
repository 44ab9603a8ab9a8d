"""The specs of WITH PREFERENCE."""
