import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import org.apache.avro.Schema;
import org.apache.avro.SchemaNormalization;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.message.BinaryMessageEncoder;

/**
 * What the Avro specification's own library makes of schemas and events.
 *
 * Reads lines of JSON, {"schema": an .avsc as text, "event": an event in Avro's JSON encoding, as text, or null}, and
 * writes for each a line: the single-object header of the schema and, behind a space, the event in single-object
 * encoding, both as hex.
 */
public class AvroVectors {
    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var json = new ObjectMapper();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode asked = json.readTree(line);
            Schema schema = new Schema.Parser().parse(asked.get("schema").asText());
            String bytes = asked.get("event").isNull() ? "" : encoded(schema, asked.get("event").asText());
            System.out.println(header(schema) + " " + bytes);
        }
    }

    private static String header(Schema schema) throws Exception {
        return "c301" + HexFormat.of().formatHex(SchemaNormalization.parsingFingerprint("CRC-64-AVRO", schema));
    }

    private static String encoded(Schema schema, String event) throws IOException {
        var reader = new GenericDatumReader<Object>(schema) {
            @Override
            protected Object newMap(Object old, int size) {
                return new LinkedHashMap<String, Object>(); // in the order of the JSON, or the bytes would be a matter of luck
            }
        };
        Object datum = reader.read(null, DecoderFactory.get().jsonDecoder(schema, event));
        byte[] bytes = new BinaryMessageEncoder<>(GenericData.get(), schema).encode(datum).array();
        return HexFormat.of().formatHex(bytes);
    }
}
