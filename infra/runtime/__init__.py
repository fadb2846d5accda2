"""The embedded runtime: brokers, ports, processes, and the supervisor that keeps the parts of one machine up."""
