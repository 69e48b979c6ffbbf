"""A Kafka client: producer, consumer, admin; asyncio inside, a blocking face over it."""
