package stormwell.clients;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Measures a real HDFS and Stormwell with the same client, in one process and in alternated rounds; the first round warms up and is
 * dropped. Arguments: rounds, MiB a file (0: small files alone), calls a kind (0: none), work directory, then for each server: name, address,
 * ids of its processes (comma-separated). Prints a table in Markdown.
 */
public final class Lab {
    private Lab() {}

    public static void main(String[] arguments) throws Exception {
        int rounds = Integer.parseInt(arguments[0]);
        long size = Long.parseLong(arguments[1]) << 20;
        int calls = Integer.parseInt(arguments[2]);
        List<Measured> servers = new ArrayList<>();
        for (int index = 4; index < arguments.length; index += 3) {
            Measured server = new Measured(arguments[index], arguments[index + 1], arguments[index + 2]);
            servers.add(server);
            if (size > 0) {
                server.note("memory, idle (MB)", server.memory());
                Idle.measure(server, arguments[index + 1]);
            }
        }
        for (int round = 0; round <= rounds; round++) {
            for (int turn = 0; turn < servers.size(); turn++) {
                // Who begins alternates too.
                Measured server = servers.get((turn + round) % servers.size());
                if (size > 0 && calls > 0) {
                    // Servers still take apart what was removed before, on the same processors.
                    for (Measured other : servers) {
                        other.settle();
                    }
                    Logs.round(server);
                }
                if (size > 0) {
                    Streams.round(server, size);
                }
                if (size > 0 && calls > 0) {
                    Names.round(server, calls);
                }
                if (calls > 0) {
                    SmallFiles.round(server, calls);
                }
                if (round == 0) {
                    server.forget();
                }
            }
            System.err.println(round == 0 ? "warmed up" : "round " + round + " of " + rounds);
        }
        for (Measured server : servers) {
            server.note("memory, after (MB)", server.memory());
        }
        Measured.table(servers, Path.of(arguments[3]).resolve("lab.md"));
    }
}
