"""The command `k` and the client library beneath it."""
