package stormwell.clients;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/** Lists of what is known to differ: lines `NAME  # REASON`; lines that begin with # are for people. */
final class Exceptions {
    private Exceptions() {}

    static Map<String, String> read(Path file) throws IOException {
        Map<String, String> found = new LinkedHashMap<>();
        for (String line : Files.readAllLines(file)) {
            int end = line.indexOf("  # ");
            if (!line.startsWith("#") && end > 0) {
                found.put(line.substring(0, end).strip(), line.substring(end + 4));
            }
        }
        return found;
    }
}
