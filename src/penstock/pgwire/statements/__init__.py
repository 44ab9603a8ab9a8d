"""The statements that clients send: their words and parameters, what they do, and the language's words for it."""
