"""Submit requests to Headrace and read the answers."""
