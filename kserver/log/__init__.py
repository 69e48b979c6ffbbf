"""The log: segments and indexes on disk in Kafka's format, their recovery, retention and flush."""
