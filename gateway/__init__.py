"""The edge: HTTP, WebSocket and SSE in front of the log. Writes requests, reads token logs, keeps nothing else."""
