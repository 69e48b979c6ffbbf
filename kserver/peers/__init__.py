"""Connections to the other brokers (peers), and requests to the controller."""
