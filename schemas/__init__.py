"""The contract: Avro files, event types, codec, topics, ids. Imports nothing of ours."""
