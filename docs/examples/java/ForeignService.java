import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.GenericRecordBuilder;
import org.apache.avro.message.BinaryMessageDecoder;
import org.apache.avro.message.BinaryMessageEncoder;
import org.apache.avro.message.SchemaStore;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A service that knows nothing of Headrace but its .avsc files: it submits one request for each prompt, all at once, and
 * prints each answer when it is whole.
 *
 * <pre>java -cp "avro-1.12.0.jar:KAFKA/libs/*" ForeignService.java SERVERS TENANT MODEL AVRO_FOLDERS PROMPT...</pre>
 *
 * AVRO_FOLDERS are separated by colons. It writes with the schemas of the first, and reads what was written with any.
 */
public class ForeignService {
    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], tenant = arguments[1], model = arguments[2];
        Schemas schemas = new Schemas(arguments[3].split(":"));
        List<String> prompts = List.of(arguments).subList(4, arguments.length);

        try (var log = new KafkaConsumer<>(consumer(servers), new StringDeserializer(), new ByteArrayDeserializer());
                var producer = new KafkaProducer<>(producer(servers), new StringSerializer(), new ByteArraySerializer())) {
            List<TopicPartition> partitions = log.partitionsFor("tokens." + tenant).stream()
                    .map(found -> new TopicPartition(found.topic(), found.partition()))
                    .toList();
            // Where the log ends now is before the answers: nothing of them can be missed.
            log.assign(partitions);
            log.endOffsets(partitions).forEach(log::seek);

            Map<String, Answer> answers = new LinkedHashMap<>();
            for (int number = 0; number < prompts.size(); number++) {
                String requestId = newRequestId(partitions.get(number % partitions.size()).partition());
                answers.put(requestId, new Answer(prompts.get(number)));
                GenericRecord event = submitted(schemas, requestId, tenant, model, prompts.get(number));
                producer.send(new ProducerRecord<>("requests." + tenant, requestId, schemas.encode(event))).get();
            }
            while (!answers.isEmpty()) {
                for (ConsumerRecord<String, byte[]> message : log.poll(Duration.ofSeconds(1))) {
                    Answer answer = answers.get(message.key());
                    if (answer == null) continue; // another service's request
                    answer.take(schemas.decode(message));
                    if (answer.end != null) {
                        answers.remove(message.key());
                        System.out.println(answer.prompt + "\t" + answer.text + "\t" + answer.end);
                    }
                }
            }
        }
    }

    static Map<String, Object> producer(String servers) {
        return Map.of("bootstrap.servers", servers, "acks", "all", "enable.idempotence", true);
    }

    static Map<String, Object> consumer(String servers) {
        return Map.of("bootstrap.servers", servers, "enable.auto.commit", false, "fetch.max.wait.ms", 5);
    }

    /** A UUIDv7 whose last 16 bits are the partition of the token log. */
    static String newRequestId(int partition) {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        long high = System.currentTimeMillis() << 16 | 0x7000 | random.nextInt(1 << 12);
        long low = 0b10L << 62 | random.nextLong(1L << 46) << 16 | partition;
        return new UUID(high, low).toString();
    }

    /** RequestSubmitted; what is left out takes its default. */
    static GenericRecord submitted(Schemas schemas, String requestId, String tenant, String model, String prompt) {
        long nowUs = System.currentTimeMillis() * 1000;
        Schema schema = schemas.named("RequestSubmitted");
        GenericRecord message = new GenericRecordBuilder(schema.getField("messages").schema().getElementType())
                .set("role", "user")
                .set("content", prompt)
                .build();
        return new GenericRecordBuilder(schema)
                .set("request_id", requestId)
                .set("tenant", tenant)
                .set("at_us", nowUs)
                .set("received_at_us", nowUs)
                .set("source", "foreign-service")
                .set("model", model)
                .set("messages", List.of(message))
                .set("max_output_tokens", 64)
                .set("temperature", 0.0)
                .set("deadline_at_us", nowUs + 60_000_000)
                .build();
    }

    /** The published events in Avro's single-object encoding. */
    static class Schemas {
        private final Map<String, Schema> toWrite = new HashMap<>();
        private final Map<String, BinaryMessageDecoder<GenericRecord>> decoders = new HashMap<>();
        private final SchemaStore.Cache known = new SchemaStore.Cache(); // every schema, by its fingerprint

        Schemas(String... folders) throws IOException {
            for (int number = 0; number < folders.length; number++) {
                for (Schema schema : in(Path.of(folders[number]))) {
                    known.addSchema(schema);
                    if (number == 0) toWrite.put(schema.getName(), schema);
                    decoders.put(schema.getFullName(), new BinaryMessageDecoder<>(GenericData.get(), schema, known));
                }
            }
        }

        private static List<Schema> in(Path folder) throws IOException {
            List<Schema> found = new ArrayList<>();
            try (var files = Files.newDirectoryStream(folder, "*.avsc")) {
                for (Path file : files) found.add(new Schema.Parser().parse(Files.readString(file)));
            }
            return found;
        }

        Schema named(String name) {
            return toWrite.get(name);
        }

        byte[] encode(GenericRecord event) throws IOException {
            ByteBuffer bytes = new BinaryMessageEncoder<GenericRecord>(GenericData.get(), event.getSchema()).encode(event);
            return bytes.array();
        }

        /** The event; null for a type that the folders do not have: it is of a newer release. */
        GenericRecord decode(ConsumerRecord<String, byte[]> message) throws IOException {
            Header type = message.headers().lastHeader("ce_type");
            var decoder = decoders.get(new String(type.value(), StandardCharsets.UTF_8));
            return decoder == null ? null : decoder.decode(message.value());
        }
    }

    /** The fold of one request's token log: take its events in log order; each token counts once. */
    static class Answer {
        final String prompt;
        final StringBuilder text = new StringBuilder();
        String end; // how it ended
        private int attempt, tokens, chars; // chars: Unicode code points
        private boolean admitted;

        Answer(String prompt) {
            this.prompt = prompt;
        }

        void take(GenericRecord event) {
            if (event == null) return;
            String name = event.getSchema().getName();
            switch (name) {
                case "RequestAdmitted" -> admitted = true;
                case "RequestRejected" -> {
                    if (!admitted && attempt == 0) end = problem(name, event); // else it is a late duplicate
                }
                case "GenerationStarted", "TokensGenerated", "GenerationFinished", "GenerationFailed" -> {
                    if ((int) event.get("attempt") < attempt) return; // its worker does not know of its successor
                    attempt = (int) event.get("attempt");
                    if (name.equals("TokensGenerated")) takeTokens(event);
                    if (name.equals("GenerationFinished")) end = name + ": " + event.get("finish_reason");
                    if (name.equals("GenerationFailed")) end = problem(name, event);
                }
                default -> {} // of a newer release
            }
        }

        private void takeTokens(GenericRecord event) {
            int index = (int) event.get("index"), offset = (int) event.get("text_offset_chars");
            if (index > tokens || offset > chars) return; // a gap: only a successor can be right
            int[] points = event.get("text").toString().codePoints().skip(chars - offset).toArray();
            text.append(new String(points, 0, points.length));
            chars += points.length;
            tokens = Math.max(tokens, index + ((List<?>) event.get("token_ids")).size());
        }

        private static String problem(String name, GenericRecord event) {
            return name + ": " + event.get("status") + " " + event.get("code") + ": " + event.get("message");
        }
    }
}
