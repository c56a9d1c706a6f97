package stormwell.clients;

import java.util.Arrays;
import java.util.Random;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** A log: one stream of small records, of which the writer awaits each, flushed (it survives the server) or synced (and the power). */
final class Logs {
    private static final int RECORD = 1 << 10;
    private static final int RECORDS = 2_000;

    private interface Durable {
        void make(FSDataOutputStream stream) throws Exception;
    }

    private Logs() {}

    static void round(Measured server) throws Exception {
        try (FileSystem files = FileSystem.newInstance(server.configuration)) {
            measure(server, files, "hflush", FSDataOutputStream::hflush);
            measure(server, files, "hsync", FSDataOutputStream::hsync);
            files.delete(new Path("/lab"), true);
        }
    }

    private static void measure(Measured server, FileSystem files, String what, Durable durable) throws Exception {
        byte[] record = new byte[RECORD];
        new Random(1).nextBytes(record);
        long[] times = new long[RECORDS];
        double processor = server.processor();
        Path path = new Path("/lab/log-" + what);
        try (FSDataOutputStream stream = files.create(path, true)) {
            for (int number = 0; number < RECORDS; number++) {
                long start = System.nanoTime();
                stream.write(record);
                durable.make(stream);
                times[number] = System.nanoTime() - start;
            }
        }
        if (files.getFileStatus(path).getLen() != (long) RECORD * RECORDS) {
            throw new IllegalStateException(server.name + ": " + path + " lacks bytes");
        }
        Arrays.sort(times);
        server.note("log of 1 KiB, " + what + ", p50 (ms)", times[RECORDS / 2] / 1e6);
        server.note("log of 1 KiB, " + what + ", p99 (ms)", times[RECORDS * 99 / 100] / 1e6);
        server.note("processor of the server for 1,000 " + what + " (s)", (server.processor() - processor) * 1000 / RECORDS);
    }
}
