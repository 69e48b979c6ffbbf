"""A Kafka client: producer, consumer, admin; asyncio inside, a blocking face over it.

    config, security, settings    what each can be told, and Kafka's defaults
    errors                        what a client raises of its own
    cluster                       brokers, leaders, connections; trying again until a deadline
    admin, offsets                topics, configurations, offsets, brokers

    producer                      send, try_send, flush
    accumulator, partitioner      records into batches, within a limit of memory
    lane                          one partition's batches: order, sequences, idempotence
    sender, outlet                batches to their leaders; timers, metadata, answers
    produce, verdict, identity    the request's bytes, what an error means, the producer id

    consumer                      assign, poll, seek
    subscription                  what is read and how far
    fetcher, fetch_session        fetches ahead from every leader; resets and checks positions
    chunk                         an answer's bytes into records, aborted ones left out

    blocking                      all of it for plain threads

Within Kafka's protocol it knows of kserver's wire, peer, config, model and errors, and nothing of
its broker.
"""
