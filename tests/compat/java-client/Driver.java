import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client, driven by JSON lines; compat_clients/driven.py says what they look like. */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long TIMEOUT_MS = 30_000;
    private static final Map<String, Member> MEMBERS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("result", JSON.valueToTree(perform(JSON.readTree(line))));
            } catch (Exception exception) {
                StringWriter trace = new StringWriter();
                exception.printStackTrace(new PrintWriter(trace));
                answer.put("error", trace.toString());
            }
            answers.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
        System.exit(0);
    }

    private static Object perform(JsonNode request) throws Exception {
        switch (request.get("op").asText()) {
            case "produce": return produce(request);
            case "read": return read(request);
            case "offsets_at": return offsetsAt(request);
            case "read_group": return readGroup(request);
            case "join": return join(request);
            case "member": return MEMBERS.get(request.get("member").asText()).report();
            case "leave": return MEMBERS.remove(request.get("member").asText()).leave();
            default:
                try (Admin admin = Admin.create(Map.of("bootstrap.servers", request.get("servers").asText()))) {
                    return administer(admin, request);
                }
        }
    }

    private static Object produce(JsonNode request) throws Exception {
        Properties settings = new Properties();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, request.get("servers").asText());
        settings.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, request.get("codec").asText());
        settings.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, request.get("idempotent").asBoolean());
        settings.put(ProducerConfig.ACKS_CONFIG, "all");
        settings.put(ProducerConfig.LINGER_MS_CONFIG, 20);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : request.get("records")) {
                ProducerRecord<byte[], byte[]> message = new ProducerRecord<>(
                    request.get("topic").asText(), record.get(0).asInt(), record.get(1).asLong(), bytes(record.get(2)), bytes(record.get(3)));
                for (JsonNode header : record.get(4)) message.headers().add(header.get(0).asText(), bytes(header.get(1)));
                sent.add(producer.send(message));
            }
            producer.flush();
            List<Long> offsets = new ArrayList<>();
            for (Future<RecordMetadata> future : sent) offsets.add(future.get(TIMEOUT_MS, TimeUnit.MILLISECONDS).offset());
            return offsets;
        }
    }

    private static Object read(JsonNode request) {
        Properties settings = consumerSettings(request);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            Map<TopicPartition, Long> starts = offsets(request, "starts");
            long count = 0;
            for (long end : offsets(request, "ends").values()) count += end;
            for (long start : starts.values()) count -= start;
            consumer.assign(starts.keySet());
            starts.forEach(consumer::seek);
            return encoded(consume(consumer, count));
        }
    }

    private static Object offsetsAt(JsonNode request) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(consumerSettings(request))) {
            Map<TopicPartition, Long> wanted = new HashMap<>();
            for (int partition = 0; partition < request.get("partitions").asInt(); partition++)
                wanted.put(new TopicPartition(request.get("topic").asText(), partition), request.get("timestamp").asLong());
            Map<Integer, Long> found = new HashMap<>();
            for (Map.Entry<TopicPartition, OffsetAndTimestamp> entry : consumer.offsetsForTimes(wanted).entrySet())
                found.put(entry.getKey().partition(), entry.getValue() == null ? -1 : entry.getValue().offset());
            return found;
        }
    }

    private static Object readGroup(JsonNode request) {
        Properties settings = consumerSettings(request);
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, request.get("group").asText());
        settings.put(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 1);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.subscribe(List.of(request.get("topic").asText()));
            List<ConsumerRecord<byte[], byte[]>> records = consume(consumer, request.get("count").asLong());
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records)
                ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            consumer.commitSync(ends);
            return encoded(records);
        }
    }

    private static Object join(JsonNode request) {
        Properties settings = consumerSettings(request);
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, request.get("group").asText());
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, true);
        settings.put(ConsumerConfig.AUTO_COMMIT_INTERVAL_MS_CONFIG, 1000);
        settings.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 300);
        settings.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 10_000);
        settings.put(ConsumerConfig.METADATA_MAX_AGE_CONFIG, 1000);
        settings.put("metadata.recovery.strategy", "none"); // "rebootstrap" forgets the topic when the only server is away, and joins anew
        settings.put(ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG, assignor(request.get("assignor").asText()));
        if (!request.get("instance").asText().isEmpty()) settings.put(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG, request.get("instance").asText());
        MEMBERS.put(request.get("member").asText(), new Member(consumer(settings), request.get("topic").asText()));
        return null;
    }

    private static String assignor(String name) {
        String simple = switch (name) {
            case "range" -> "RangeAssignor";
            case "roundrobin" -> "RoundRobinAssignor";
            default -> "CooperativeStickyAssignor";
        };
        return "org.apache.kafka.clients.consumer." + simple;
    }

    /** A consumer polled by a thread of its own. */
    private static final class Member implements ConsumerRebalanceListener, Runnable {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Thread thread;
        private final TreeSet<Integer> assignment = new TreeSet<>();
        private List<long[]> consumed = new ArrayList<>();
        private int rebalances;
        private String error = "";
        private volatile boolean stopping;

        Member(KafkaConsumer<byte[], byte[]> consumer, String topic) {
            this.consumer = consumer;
            consumer.subscribe(List.of(topic), this);
            thread = new Thread(this, "member");
            thread.setDaemon(true);
            thread.start();
        }

        @Override
        public void run() {
            try (consumer) {
                while (!stopping) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100)))
                        synchronized (this) {
                            consumed.add(new long[] {record.partition(), record.offset()});
                        }
                }
            } catch (RuntimeException exception) {
                synchronized (this) {
                    error = exception.toString();
                }
            }
        }

        @Override
        public synchronized void onPartitionsAssigned(Collection<TopicPartition> given) {
            rebalances++;
            given.forEach(tp -> assignment.add(tp.partition()));
        }

        @Override
        public synchronized void onPartitionsRevoked(Collection<TopicPartition> taken) {
            taken.forEach(tp -> assignment.remove(tp.partition()));
        }

        synchronized Object report() {
            List<long[]> since = consumed;
            consumed = new ArrayList<>();
            return Map.of("assignment", List.copyOf(assignment), "consumed", since, "rebalances", rebalances, "error", error);
        }

        Object leave() throws InterruptedException {
            stopping = true;
            thread.join(TIMEOUT_MS);
            if (thread.isAlive()) throw new IllegalStateException("the consumer did not close");
            return null;
        }
    }

    private static Object administer(Admin admin, JsonNode request) throws Exception {
        String topic = request.path("topic").asText();
        String group = request.path("group").asText();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        switch (request.get("op").asText()) {
            case "create_topic":
                NewTopic wanted = new NewTopic(topic, request.get("partitions").asInt(), (short) 1);
                return wait(admin.createTopics(List.of(wanted.configs(strings(request.get("configs"))))).all());
            case "describe_topic":
                TopicDescription described = wait(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
                described.partitions().forEach(partition -> {
                    if (partition.leader() == null || partition.replicas().isEmpty() || partition.isr().isEmpty())
                        throw new IllegalStateException(partition.toString());
                });
                return described.partitions().size();
            case "list_topics":
                return wait(admin.listTopics().names());
            case "describe_configs":
                Map<String, String> entries = new HashMap<>();
                wait(admin.describeConfigs(List.of(resource)).all()).get(resource).entries().forEach(entry -> entries.put(entry.name(), entry.value()));
                return entries;
            case "alter_configs":
                List<AlterConfigOp> operations = new ArrayList<>();
                strings(request.get("configs")).forEach((name, value) -> operations.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
                return wait(admin.incrementalAlterConfigs(Map.of(resource, operations)).all());
            case "create_partitions":
                return wait(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(request.get("partitions").asInt()))).all());
            case "delete_records":
                Map<TopicPartition, RecordsToDelete> before = new HashMap<>();
                offsets(request, "starts").forEach((tp, offset) -> before.put(tp, RecordsToDelete.beforeOffset(offset)));
                Map<Integer, Long> lows = new HashMap<>();
                for (var entry : admin.deleteRecords(before).lowWatermarks().entrySet()) lows.put(entry.getKey().partition(), wait(entry.getValue()).lowWatermark());
                return lows;
            case "list_groups":
                List<String> groups = new ArrayList<>();
                for (GroupListing listing : wait(admin.listGroups().all())) groups.add(listing.groupId());
                return groups;
            case "describe_group":
                ConsumerGroupDescription description = wait(admin.describeConsumerGroups(List.of(group)).all()).get(group);
                return List.of(description.groupState().name(), description.members().size());
            case "group_offsets":
                Map<Integer, Long> committed = new HashMap<>();
                wait(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).forEach((tp, at) -> committed.put(tp.partition(), at.offset()));
                return committed;
            case "delete_group":
                return wait(admin.deleteConsumerGroups(List.of(group)).all());
            case "delete_topic":
                return wait(admin.deleteTopics(List.of(topic)).all());
            default:
                throw new IllegalArgumentException(request.get("op").asText());
        }
    }

    private static <T> T wait(org.apache.kafka.common.KafkaFuture<T> future) throws Exception {
        try {
            return future.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        } catch (ExecutionException exception) {
            throw exception.getCause() instanceof Exception cause ? cause : exception;
        }
    }

    private static List<ConsumerRecord<byte[], byte[]>> consume(KafkaConsumer<byte[], byte[]> consumer, long count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.currentTimeMillis() + TIMEOUT_MS;
        while (records.size() < count) {
            if (System.currentTimeMillis() > deadline) throw new IllegalStateException(records.size() + " of " + count + " records");
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        return records;
    }

    private static Properties consumerSettings(JsonNode request) {
        Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, request.get("servers").asText());
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        return settings;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Properties settings) {
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static Map<TopicPartition, Long> offsets(JsonNode request, String field) {
        Map<TopicPartition, Long> offsets = new HashMap<>();
        request.get(field).fields().forEachRemaining(
            entry -> offsets.put(new TopicPartition(request.get("topic").asText(), Integer.parseInt(entry.getKey())), entry.getValue().asLong()));
        return offsets;
    }

    private static Map<String, String> strings(JsonNode object) {
        Map<String, String> strings = new HashMap<>();
        object.fields().forEachRemaining(entry -> strings.put(entry.getKey(), entry.getValue().asText()));
        return strings;
    }

    private static ArrayNode encoded(List<ConsumerRecord<byte[], byte[]>> records) {
        ArrayNode all = JSON.createArrayNode();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            ArrayNode headers = JSON.createArrayNode();
            for (Header header : record.headers()) headers.addArray().add(header.key()).add(base64(header.value()));
            all.addArray().add(record.partition()).add(record.timestamp()).add(base64(record.key())).add(base64(record.value())).add(headers).add(record.offset());
        }
        return all;
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String base64(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
