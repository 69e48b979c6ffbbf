import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Apache's own client as a worker: the options, figures and lines of workers/work.py. */
public class Worker {
    static final int REQUEST_TIMEOUT_MS = 3_000;
    static final int RETRY_MS = 50, RETRY_MAX_MS = 200;
    static final int PAUSE_MS = 10;
    static final int AT_ONCE = 10;
    static final int ABORTED_EACH = 4;
    static final String NONSENSE = "-1";
    static final Map<String, String> given = new HashMap<>();
    static volatile boolean stopped;

    public static void main(String[] args) throws Exception {
        for (int at = 1; at < args.length; at += 2) given.put(args[at], args[at + 1]);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopped = true;
            try {
                main.join();
            } catch (InterruptedException end) {
                throw new IllegalStateException(end);
            }
        }));
        switch (args[0]) {
            case "write" -> write();
            case "transact" -> transact();
            case "read" -> read();
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    static Map<String, Object> settings(Map<String, Object> own) {
        Map<String, Object> all = new HashMap<>(own);
        all.put("bootstrap.servers", given.get("--bootstrap-server"));
        all.put("request.timeout.ms", REQUEST_TIMEOUT_MS);
        all.put("retry.backoff.ms", RETRY_MS);
        all.put("retry.backoff.max.ms", RETRY_MAX_MS);
        all.put("reconnect.backoff.ms", RETRY_MS);
        all.put("reconnect.backoff.max.ms", RETRY_MAX_MS);
        all.put("socket.connection.setup.timeout.ms", REQUEST_TIMEOUT_MS);
        return all;
    }

    static KafkaProducer<String, String> producer(Map<String, Object> own) {
        return new KafkaProducer<>(settings(own), new StringSerializer(), new StringSerializer());
    }

    static synchronized void tell(Iterable<String> numbers) {
        StringJoiner all = new StringJoiner(", ", "{\"done\": [", "]}");
        numbers.forEach(all::add);
        System.out.println(all);
    }

    static synchronized void fail(Exception error) {
        error.printStackTrace();
        System.out.println("{\"failed\": \"" + error.toString().replaceAll("[\"\\\\\n]", "'") + "\"}");
    }

    static void write() throws Exception {
        KafkaProducer<String, String> producer =
            producer(Map.of("enable.idempotence", true, "linger.ms", 0));
        for (long number = 0; !stopped; Thread.sleep(PAUSE_MS)) {
            for (int each = 0; each < AT_ONCE; each++) {
                String value = Long.toString(number++);
                producer.send(record(value), (sent, error) -> {
                    if (error == null) tell(List.of(value));
                    else fail(error);
                });
            }
        }
        producer.close();
    }

    static ProducerRecord<String, String> record(String value) {
        return new ProducerRecord<>(given.get("--topic"), 0, null, value);
    }

    static void transact() {
        KafkaProducer<String, String> producer =
            producer(Map.of("transactional.id", given.get("--transactional-id"), "linger.ms", 0));
        again(producer::initTransactions);
        long number = 0;
        for (int times = 1; !stopped; times++) {
            boolean kept = times % ABORTED_EACH != 0;
            String[] numbers = new String[AT_ONCE];
            for (int each = 0; each < AT_ONCE; each++) numbers[each] = Long.toString(number + each);
            try {
                producer.beginTransaction();
                for (String each : numbers) producer.send(record(kept ? each : NONSENSE));
                // Without it, 4.3.1 may send EndTxn before the records: Sender determines whether
                // there are incomplete batches before it locks TransactionManager.
                producer.flush();
                if (!kept) {
                    again(producer::abortTransaction);
                    continue;
                }
                again(producer::commitTransaction);
            } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException end) {
                fail(end);
                return;
            } catch (KafkaException refused) {
                try {
                    again(producer::abortTransaction);
                } catch (KafkaException end) {
                    end.addSuppressed(refused);
                    fail(end);
                    return;
                }
                continue;
            }
            tell(List.of(numbers));
            number += AT_ONCE;
        }
        producer.close();
    }

    /** Until it does not only ask for patience. */
    static void again(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException slow) {
                continue;
            }
        }
    }

    static void read() {
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
            settings(Map.of(
                "group.id", given.get("--group-id"),
                "enable.auto.commit", false,
                "auto.offset.reset", "earliest",
                "session.timeout.ms", 45_000,
                "fetch.max.wait.ms", 100)),
            new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(given.get("--topic")));
        while (!stopped) {
            ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(100));
            if (found.isEmpty()) continue;
            List<String> values = new ArrayList<>();
            for (ConsumerRecord<String, String> each : found) values.add(each.value());
            tell(values);
            while (!stopped) {
                try {
                    consumer.commitSync();
                    break;
                } catch (RetriableException soon) {
                    continue;
                }
            }
        }
        consumer.close();
    }
}
