"""Handlers of the Kafka APIs, one file per API key; table.py lists them."""
