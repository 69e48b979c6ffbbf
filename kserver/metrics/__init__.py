"""What is counted of a broker: the counters, the names they are known by, their text."""
