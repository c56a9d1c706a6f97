package stormwell.clients;

import java.io.OutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;

/** Many files of one small block in one directory: written by 16 threads (create, addBlock, 4 KiB, complete), then listed with their places. */
final class SmallFiles {
    private static final int THREADS = 16;
    private static final int LENGTH = 4 << 10;
    private static final Path DIRECTORY = new Path("/lab/small");

    private SmallFiles() {}

    static void round(Measured server, int count) throws Exception {
        try (FileSystem files = FileSystem.newInstance(server.configuration)) {
            write(server, files, count);
            double processor = server.processor();
            long begin = System.nanoTime();
            int listed = 0;
            RemoteIterator<LocatedFileStatus> all = files.listLocatedStatus(DIRECTORY);
            while (all.hasNext()) {
                LocatedFileStatus file = all.next();
                if (file.getBlockLocations().length != 1 || file.getBlockLocations()[0].getHosts().length == 0) {
                    throw new IllegalStateException(server.name + ": " + file.getPath() + " is nowhere");
                }
                listed++;
            }
            double seconds = (System.nanoTime() - begin) / 1e9;
            if (listed != count) {
                throw new IllegalStateException(server.name + ": " + listed + " of " + count + " files were listed");
            }
            server.note("listLocatedStatus (files per s)", count / seconds);
            server.note("processor of the server for 1,000 of these (s)", (server.processor() - processor) * 1000 / count);
            files.delete(new Path("/lab"), true);
        }
    }

    private static void write(Measured server, FileSystem files, int count) throws Exception {
        byte[] content = new byte[LENGTH];
        double processor = server.processor();
        double seconds = Threads.run(THREADS, thread -> {
            for (int number = thread; number < count; number += THREADS) {
                try (OutputStream stream = files.create(new Path(DIRECTORY, "file" + number), true)) {
                    stream.write(content);
                }
            }
        });
        server.note("files of 4 KiB written (per s)", count / seconds);
        server.note("processor of the server for 1,000 of them (s)", (server.processor() - processor) * 1000 / count);
    }
}
