import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consume ADDRESS TOPIC MESSAGES: reads partition 0 from its start twice, without a group, and
 * prints the messages a second of the second pass, when the JVM is warm.
 *
 * <p>kafka-consumer-perf-test.sh reads once, and only as a member of a group.
 */
public class Consume {
  private static final Duration PATIENCE = Duration.ofSeconds(10);

  public static void main(String[] words) {
    Properties config = new Properties();
    config.put("bootstrap.servers", words[0]);
    config.put("enable.auto.commit", "false");
    TopicPartition partition = new TopicPartition(words[1], 0);
    long messages = Long.parseLong(words[2]);
    ByteArrayDeserializer bytes = new ByteArrayDeserializer();
    try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, bytes, bytes)) {
      consumer.assign(List.of(partition));
      read(consumer, partition, messages);
      System.out.printf("%.1f%n", read(consumer, partition, messages));
    }
  }

  private static double read(
      KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long messages) {
    consumer.seek(partition, 0);
    long first = poll(consumer);
    long read = 0;
    long began = System.nanoTime();
    while (first + read < messages) {
      read += poll(consumer);
    }
    return read / ((System.nanoTime() - began) * 1e-9);
  }

  private static int poll(KafkaConsumer<byte[], byte[]> consumer) {
    int count = consumer.poll(PATIENCE).count();
    if (count == 0) {
      throw new IllegalStateException("no message for " + PATIENCE);
    }
    return count;
  }
}
