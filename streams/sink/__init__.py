"""The projection of the log into ClickHouse: every record of every topic, once."""
