"""The statements that clients send: their words, what they do, and the same in the words of the language."""
