import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/** The classes behind Apache's scripts, one run after the other in one JVM: a line in is a class
 * and its arguments, a line out what it printed until it ended, and its status. */
public class Scripts {
    static final ObjectMapper JSON = new ObjectMapper();

    static class Ended extends Error { }

    static ByteArrayOutputStream out, err;
    static Map<String, Object> outcome;

    static void end(int status) {
        if (outcome == null)
            outcome = Map.of(
                "status", status,
                "out", out.toString(StandardCharsets.UTF_8),
                "err", err.toString(StandardCharsets.UTF_8));
    }

    /** Scala keeps the output that its first script of the process had. */
    static void redirectScala() throws Exception {
        try {
            Class<?> console = Class.forName("scala.Console$");
            Object only = console.getField("MODULE$").get(null);
            console.getMethod("setOutDirect", PrintStream.class).invoke(only, System.out);
            console.getMethod("setErrDirect", PrintStream.class).invoke(only, System.err);
        } catch (ClassNotFoundException absent) {
            // Kafka 4 has no Scala in its tools.
        }
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        Exit.Procedure exit = (status, message) -> {
            end(status);
            throw new Ended();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            JsonNode asked = JSON.readTree(line);
            String[] words = JSON.treeToValue(asked.get("words"), String[].class);
            out = new ByteArrayOutputStream();
            err = new ByteArrayOutputStream();
            outcome = null;
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            redirectScala();
            try {
                Class<?> tool = Class.forName(asked.get("class").asText());
                tool.getMethod("main", String[].class).invoke(null, (Object) words);
                end(0);
            } catch (InvocationTargetException failure) {
                if (!(failure.getCause() instanceof Ended))
                    failure.getCause().printStackTrace();
                end(1);
            }
            answers.println(JSON.writeValueAsString(outcome));
            answers.flush();
        }
    }
}
