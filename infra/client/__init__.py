"""The WebSocket client behind `headrace chat` and `headrace demo`."""
