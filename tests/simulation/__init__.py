"""The scheduler in virtual time: arrivals, what a step costs, and what comes of it. `python -m tests.simulation`."""
