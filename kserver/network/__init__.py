"""Listeners, connections and quotas: from sockets to request frames, and responses back to
sockets."""
