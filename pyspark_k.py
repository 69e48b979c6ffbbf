"""Where Spark finds the format `k`: it looks through all modules named pyspark_*."""

from kcli.spark.source import KafkaSource as DefaultSource

__all__ = ["DefaultSource"]
