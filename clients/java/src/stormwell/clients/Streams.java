package stormwell.clients;

import java.io.InputStream;
import java.io.OutputStream;
import java.util.Random;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Two threads write a large file each, then read them. */
final class Streams {
    private static final int THREADS = 2;
    private static final double GIB = 1L << 30;
    private static final byte[] NOISE = new byte[1 << 20];

    static {
        new Random(1).nextBytes(NOISE);
    }

    private interface Work {
        void run(FileSystem files, Path path) throws Exception;
    }

    private Streams() {}

    static void round(Measured server, long size) throws Exception {
        try (FileSystem files = FileSystem.newInstance(server.configuration)) {
            measure(server, files, size, "write", (target, path) -> {
                try (OutputStream stream = target.create(path, true)) {
                    for (long done = 0; done < size; done += NOISE.length) {
                        stream.write(NOISE);
                    }
                }
            });
            measure(server, files, size, "read", (target, path) -> {
                byte[] buffer = new byte[NOISE.length];
                long got = 0;
                try (InputStream stream = target.open(path)) {
                    for (int count = stream.read(buffer); count > 0; count = stream.read(buffer)) {
                        got += count;
                    }
                }
                if (got != size) {
                    throw new IllegalStateException(server.name + ": " + path + " has " + got + " bytes, not " + size);
                }
            });
            files.delete(new Path("/lab"), true);
        }
    }

    private static void measure(Measured server, FileSystem files, long size, String what, Work work) throws Exception {
        double processor = server.processor();
        double seconds = Threads.run(THREADS, thread -> work.run(files, new Path("/lab/file" + thread)));
        server.note(what + ", " + THREADS + " threads (MB/s)", THREADS * size / seconds / 1e6);
        server.note("processor of the server for a GiB, " + what + " (s)", (server.processor() - processor) / (THREADS * size / GIB));
    }
}
