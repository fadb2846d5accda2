"""docs/event-reference.md, made from the schemas, the topic table and a recorded run: `make docs`."""
