"""The two stages on the log: thin shells around validate.py and decide.py."""
