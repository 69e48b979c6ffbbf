"""The producer.

producer                      send, try_send, flush
record_appender               a record's way through interceptors, serializers, partitioner
accumulator, partitioner      records into batches, within buffer.memory
partition_queue               one partition's batches: order, sequences, idempotence
sender, broker_sender         batches to their leaders; timers, metadata, responses
produce, produce_decision,    Produce's bytes, what an error means, the producer id
  producer_id
record_faults                 why a record cannot be encoded
transactions,                 states of a transaction and errors; its requests
  transaction_manager
transaction_successor         ends transactions that producers elsewhere left open for it
"""
