import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache's own client as a transactor: the options and lines of transactors/work.py. */
public class Transactor {
    static final int AT_ONCE = 20;
    static final Map<String, String> given = new HashMap<>();

    public static void main(String[] args) {
        for (int at = 1; at < args.length; at += 2) given.put(args[at], args[at + 1]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", given.get("--bootstrap-server"),
            "transactional.id", given.get("--transactional-id"),
            "transaction.timeout.ms", 20_000);
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        if (args[0].equals("copy")) copy(producer);
        else transfer(producer);
    }

    static void tell(boolean committed) {
        System.out.println(committed ? "{\"name\": \"committed\"}" : "{\"name\": \"aborted\"}");
    }

    static void copy(KafkaProducer<byte[], byte[]> producer) {
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
            Map.of(
                "bootstrap.servers", given.get("--bootstrap-server"),
                "group.id", given.get("--group-id"),
                "isolation.level", "read_committed",
                "enable.auto.commit", false,
                "auto.offset.reset", "earliest",
                "session.timeout.ms", 3000,
                "heartbeat.interval.ms", 500,
                "max.poll.records", AT_ONCE),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(given.get("--source")));
        while (true) {
            ConsumerRecords<byte[], byte[]> read = consumer.poll(Duration.ofMillis(100));
            if (read.isEmpty()) continue;
            try {
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> record : read) {
                    producer.send(new ProducerRecord<>(
                        given.get("--target"), record.partition(), null, record.value()));
                    offsets.put(new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
                tell(true);
            } catch (ProducerFencedException fenced) {
                throw fenced;
            } catch (KafkaException refused) {
                producer.abortTransaction();
                tell(false);
                consumer.committed(consumer.assignment()).forEach((partition, offset) ->
                    consumer.seek(partition, offset == null ? 0 : offset.offset()));
            }
        }
    }

    static void transfer(KafkaProducer<byte[], byte[]> producer) {
        int partitions = Integer.parseInt(given.get("--partitions"));
        Random chance = new Random();
        for (int number = 1; ; number++) {
            int amount = 1 + chance.nextInt(1000);
            int taken = chance.nextInt(partitions);
            int to = (taken + 1 + chance.nextInt(partitions - 1)) % partitions;
            producer.beginTransaction();
            boolean kept = number % 4 != 0;
            send(producer, taken, -amount);
            if (kept) {
                send(producer, to, amount);
                producer.commitTransaction();
            } else {
                producer.flush();
                producer.abortTransaction();
            }
            tell(kept);
        }
    }

    static void send(KafkaProducer<byte[], byte[]> producer, int partition, int amount) {
        byte[] value = Integer.toString(amount).getBytes();
        producer.send(new ProducerRecord<>(given.get("--target"), partition, null, value));
    }
}
