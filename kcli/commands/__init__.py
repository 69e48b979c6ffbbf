"""One file per script of Kafka's bin/: parse, call the client, print."""
