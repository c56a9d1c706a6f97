package stormwell.clients;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Fills a store and looks what a client sees: the words of HDFS, in the middle of a block and at the next one; what was closed can
 * be read; after a delete there is room again. Argument: address of a store of some hundred MiB.
 */
public final class Full {
    private static final int WRITERS = 2;
    private static final byte[] PIECE = new byte[8 << 20];
    /** What HDFS says, and what we add. */
    private static final List<String> WORDS = List.of("could only be written to 0 of the 1 minReplication nodes", "The store is full");

    static {
        new Random(3).nextBytes(PIECE);
    }

    private Full() {}

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = Side.configuration(arguments[0]);
        FileSystem files = FileSystem.get(configuration);
        Map<Path, Boolean> kept = new ConcurrentHashMap<>();
        ExecutorService threads = Executors.newFixedThreadPool(WRITERS);
        long begin = System.nanoTime();
        List<Future<IOException>> ends = threads.invokeAll(List.of(() -> fill(files, "a", kept), () -> fill(files, "b", kept)));
        threads.shutdown();
        for (Future<IOException> end : ends) {
            words(end.get(), "in a block");
        }
        long full = System.nanoTime();
        // Now it is known to be full: nobody waits for long.
        words(write(files, new Path("/next"), PIECE), "at the next block");
        long next = System.nanoTime();
        read(files, kept);
        // It was made, or refused itself.
        check(!files.exists(new Path("/next")) || files.getFileStatus(new Path("/next")).getLen() == 0, "a refused file is empty");
        files.delete(new Path("/next"), false);
        int half = 0;
        for (Path path : List.copyOf(kept.keySet())) {
            if (half++ % 2 == 0) {
                check(files.delete(path, false), "delete of " + path);
                kept.remove(path);
            }
        }
        // Space comes back in a moment, not at once.
        IOException refused = write(files, new Path("/after"), PIECE);
        for (int tries = 1; refused != null && tries < 50; tries++) {
            words(refused, "after the delete");
            Thread.sleep(200);
            refused = write(files, new Path("/after"), PIECE);
        }
        check(refused == null, "writing works after a delete: " + refused);
        kept.put(new Path("/after"), true);
        read(files, kept);
        System.out.printf("full after %.1f s, refused at the next block within %.1f s; %d files kept%n", (full - begin) / 1e9,
            (next - full) / 1e9, kept.size());
        System.exit(0);
    }

    /** Writes files until it is refused. Those that were closed are kept. */
    private static IOException fill(FileSystem files, String name, Map<Path, Boolean> kept) {
        for (int number = 0;; number++) {
            Path path = new Path("/" + name + number);
            IOException refused = write(files, path, PIECE);
            if (refused != null) {
                return refused;
            }
            kept.put(path, true);
            if (number > 1000) {
                return new IOException("the store is never full");
            }
        }
    }

    private static IOException write(FileSystem files, Path path, byte[] bytes) {
        try {
            // Closed by hand: a stream that failed throws the same exception twice, which a `try` with it cannot bear.
            OutputStream stream = files.create(path, true);
            try {
                stream.write(bytes);
            } finally {
                stream.close();
            }
            return null;
        } catch (IOException refused) {
            return refused;
        }
    }

    private static void read(FileSystem files, Map<Path, Boolean> kept) throws IOException {
        byte[] got = new byte[PIECE.length];
        for (Path path : kept.keySet()) {
            try (DataInputStream stream = files.open(path)) {
                stream.readFully(got);
                check(Arrays.equals(got, PIECE) && stream.read() < 0, "what is in " + path);
            }
        }
    }

    private static void words(IOException refused, String when) {
        for (String word : WORDS) {
            if (!String.valueOf(refused.getMessage()).contains(word)) {
                throw new IllegalStateException(when + " the client sees other words", refused);
            }
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException("not so: " + what);
        }
    }
}
