"""The protocol itself: messages, errors and the login."""
