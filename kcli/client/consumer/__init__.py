"""The consumer.

consumer                  subscribe, assign, poll, seek, commit
subscription              assigned partitions and their positions
fetcher, fetch_session    fetches ahead from every leader; resets and checks positions
completed_fetch           a response's bytes into records, without aborted ones
consumer_metadata         the topics that a consumer subscribes to
listener                  callbacks for assigned and revoked partitions
"""
