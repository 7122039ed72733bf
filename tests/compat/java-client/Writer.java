import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java producer at its default settings: sends numbered records until its standard input ends, and writes down what becomes of each.
 *
 * Arguments: servers, topic, partitions, number of this producer, records per second, "idempotent" or "plain", file. The rows, the values and
 * what is printed at the end are those of tests/chaos/chaos_history.py and chaos_writer.py: change both.
 */
public final class Writer {
    private static final int ROW_BYTES = 40;
    private static final long TICK_MS = 10;
    private static final Duration CLOSE = Duration.ofSeconds(150);
    private static String firstError = "";
    private static volatile boolean stopping;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // where the client logs to
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        int number = Integer.parseInt(arguments[3]);
        double perSecond = Double.parseDouble(arguments[4]);
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(ProducerConfig.CLIENT_ID_CONFIG, "chaos-" + number);
        if (arguments[5].equals("plain")) settings.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, false);
        long sent = 0;
        try (DataOutputStream rows = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(arguments[6]), 1 << 20))) {
            KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
            Thread stopper = new Thread(Writer::untilInputEnds, "stopper");
            stopper.setDaemon(true);
            stopper.start();
            double due = 0;
            long last = System.nanoTime();
            while (!stopping) {
                Thread.sleep(TICK_MS);
                long now = System.nanoTime();
                due = Math.min(due + (now - last) / 1e9 * perSecond, perSecond);
                last = now;
                for (; due >= 1; due--) send(producer, rows, topic, partitions, number, sent++);
            }
            producer.close(CLOSE); // longer than delivery.timeout.ms: by then each record has its report
        }
        answers.println("{\"sent\": " + sent + ", \"first_error\": \"" + firstError.replaceAll("[\"\\\\\\s]+", " ") + "\"}");
        System.exit(0);
    }

    private static void untilInputEnds() {
        try {
            System.in.read();
        } catch (IOException exception) {
            System.err.println(exception);
        }
        stopping = true;
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, DataOutputStream rows, String topic, int partitions, int number, long sequence) {
        int partition = (int) (sequence % partitions);
        long sentAt = System.nanoTime();
        producer.send(new ProducerRecord<>(topic, partition, null, valueOf(number, sequence)), (metadata, error) -> {
            ByteBuffer row = ByteBuffer.allocate(ROW_BYTES).order(ByteOrder.LITTLE_ENDIAN);
            row.putLong(sequence).putInt(partition).putInt(error == null ? 0 : 1).putLong(error == null ? metadata.offset() : -1);
            row.putDouble(sentAt / 1e9).putDouble(System.nanoTime() / 1e9);
            synchronized (rows) {
                if (error != null && firstError.isEmpty()) firstError = sequence + ": " + error;
                try {
                    rows.write(row.array());
                } catch (IOException exception) {
                    throw new UncheckedIOException(exception);
                }
            }
        });
    }

    private static byte[] valueOf(int number, long sequence) {
        byte[] value = new byte[12 + (int) (sequence * 7919 % 300)];
        Arrays.fill(value, (byte) (sequence % 251));
        ByteBuffer.wrap(value).order(ByteOrder.LITTLE_ENDIAN).putInt(number).putLong(sequence);
        return value;
    }
}
