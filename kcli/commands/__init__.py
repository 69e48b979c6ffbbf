"""The commands: one file for each script in Kafka's bin/, which parses, calls the client, and
prints.
"""
