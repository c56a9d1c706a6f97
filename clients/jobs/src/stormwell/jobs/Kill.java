package stormwell.jobs;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.TestDFSIO;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.util.ToolRunner;

/**
 * The server is killed with -9 while TestDFSIO's writers run, and started again: what a close or a sync acknowledged is there,
 * byte by byte, and whoever recovers the lease of a file goes on at its end.
 */
final class Kill {
    /** So much is synced of every file when the server is killed. */
    private static final long SYNCED = 4 << 20;
    /** Far more than is written until then. */
    private static final int MIB = 1024;
    private static final long WAIT_MAX = TimeUnit.SECONDS.toNanos(60);

    private Kill() {}

    static void run(Configuration configuration, Path work) throws Exception {
        configuration.setInt(Witness.SYNC, 1 << 20);
        // One that is kept from the steps before does not know that.
        configuration.setBoolean("fs.hdfs.impl.disable.cache", true);
        configuration.setInt("mapreduce.local.map.tasks.maximum", DfsIo.FILES);
        // Each map task has a buffer for its output, which is one line here.
        configuration.setInt("mapreduce.task.io.sort.mb", 1);
        Witness.FILES.clear();
        configuration.set("test.build.data", "/closed");
        DfsIo.job(configuration, work, "-write", 8);
        configuration.set("test.build.data", "/open");
        CompletableFuture<Boolean> writers = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                String[] words = {"-write", "-nrFiles", "" + DfsIo.FILES, "-size", MIB + "MB"};
                writers.complete(ToolRunner.run(configuration, new TestDFSIO(), words) == 0);
            } catch (Exception ended) {
                writers.complete(false);
            }
        });
        thread.start();
        await(() -> open() == DfsIo.FILES || writers.isDone());
        Jobs.equal(writers.isDone(), false, "the writers ended by themselves");
        Jobs.SAID.println("kill");
        Jobs.SAID.flush();
        Jobs.equal(writers.get(120, TimeUnit.SECONDS), false, "the writers survived the only server");
        // As it was when the last writer gave up: nothing is acknowledged any more.
        Map<String, Witness.Known> known = new TreeMap<>(Witness.FILES);
        try (DistributedFileSystem files = (DistributedFileSystem) FileSystem.newInstance(configuration)) {
            check(files, known);
        }
        configuration.set("test.build.data", "/after");
        DfsIo.job(configuration, work, "-write", 8);
    }

    private static long open() {
        return Witness.FILES.values().stream().filter(file -> !file.closed() && file.synced() >= SYNCED).count();
    }

    private static void check(DistributedFileSystem files, Map<String, Witness.Known> known) throws Exception {
        Jobs.equal(known.size(), 2 * DfsIo.FILES, "files that were begun");
        long more = 0;
        for (Map.Entry<String, Witness.Known> entry : known.entrySet()) {
            org.apache.hadoop.fs.Path path = new org.apache.hadoop.fs.Path(entry.getKey());
            Witness.Known file = entry.getValue();
            if (!file.closed()) {
                await(() -> files.recoverLease(path));
            }
            FileStatus found = files.getFileStatus(path);
            boolean enough = file.closed() ? found.getLen() == file.synced() : found.getLen() >= file.synced();
            Jobs.equal(enough, true, path + " has " + found.getLen() + " bytes of " + file);
            DfsIo.compare(files, found);
            more += found.getLen() - file.synced();
            goOn(files, path, found.getLen());
        }
        Jobs.SAID.printf("    %d files, %d of them open when the server was killed; %d bytes more than were synced%n", known.size(),
            known.values().stream().filter(file -> !file.closed()).count(), more);
    }

    /** Somebody else appends what comes next. */
    private static void goOn(FileSystem files, org.apache.hadoop.fs.Path path, long length) throws IOException {
        byte[] next = new byte[1000];
        Witness.fill(path.toUri().getPath(), length, next, next.length);
        try (OutputStream stream = files.append(path)) {
            stream.write(next);
        }
        FileStatus found = files.getFileStatus(path);
        Jobs.equal(found.getLen(), length + next.length, "length of " + path + " after the append");
        DfsIo.compare(files, found);
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void await(Condition condition) throws Exception {
        long begin = System.nanoTime();
        while (!condition.holds()) {
            Jobs.equal(System.nanoTime() - begin < WAIT_MAX, true, "it happens within a minute");
            Thread.sleep(20);
        }
    }
}
