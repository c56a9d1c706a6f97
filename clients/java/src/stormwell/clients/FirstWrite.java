package stormwell.clients;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Waits for a server that is not there yet: says `ready` once the classes are warm (a server at the first address helps with that),
 * and `done` when a write to the second address is durable.
 */
public final class FirstWrite {
    private static final int WARM = 20;

    private FirstWrite() {}

    public static void main(String[] arguments) throws Exception {
        for (int count = 0; count < WARM; count++) {
            write(arguments[0]);
        }
        System.out.println("ready");
        while (true) {
            try {
                write(arguments[1]);
                break;
            } catch (IOException notYet) {
                Thread.sleep(5);
            }
        }
        System.out.println("done");
    }

    private static void write(String address) throws IOException {
        Configuration configuration = Side.configuration(address);
        configuration.setInt("ipc.client.connect.max.retries", 0);
        try (FileSystem files = FileSystem.newInstance(configuration)) {
            // Not closed with the block: after a failed write closing fails in the same way, and closes nothing.
            FSDataOutputStream stream = files.create(new Path("/first"), true);
            stream.write(1);
            stream.hsync();
            stream.close();
        }
    }
}
