"""The log: how every part reads and writes it. Kafka settings, producer, readers, registry, dead letters."""
