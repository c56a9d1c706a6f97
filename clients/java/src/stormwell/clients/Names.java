package stormwell.clients;

import java.net.URI;
import java.util.Arrays;
import java.util.EnumSet;
import org.apache.hadoop.crypto.CryptoProtocolVersion;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.protocol.ClientProtocol;
import org.apache.hadoop.io.EnumSetWritable;

/**
 * The calls that NNThroughputBenchmark makes, from 16 threads over one connection: each kind alone, so that the processor time and
 * the slowest calls belong to it.
 */
final class Names {
    private static final int THREADS = 16;
    private static final long BLOCK = 128L << 20;
    private static final FsPermission OPEN = FsPermission.getDirDefault();

    private interface Call {
        void run(ClientProtocol server, int number) throws Exception;
    }

    private Names() {}

    static void round(Measured server, int calls) throws Exception {
        URI address = FileSystem.getDefaultUri(server.configuration);
        try (DFSClient client = new DFSClient(address, server.configuration)) {
            ClientProtocol proxy = client.getNamenode();
            String name = client.getClientName();
            measure(server, proxy, calls, "mkdirs", (to, n) -> to.mkdirs("/lab/dirs/" + n % 100 + "/" + n, OPEN, true));
            measure(server, proxy, calls, "create", (to, n) -> {
                String path = file(n);
                to.create(path, FsPermission.getFileDefault(), name, new EnumSetWritable<>(EnumSet.of(CreateFlag.CREATE)), true,
                    (short) 1, BLOCK, CryptoProtocolVersion.supported(), null, null);
                while (!to.complete(path, name, null, 0)) {
                    Thread.onSpinWait();
                }
            });
            measure(server, proxy, calls, "open", (to, n) -> to.getBlockLocations(file(n), 0, BLOCK));
            measure(server, proxy, calls, "fileStatus", (to, n) -> to.getFileInfo(file(n)));
            measure(server, proxy, calls, "rename", (to, n) -> to.rename(file(n), file(n) + "r"));
            measure(server, proxy, calls, "delete", (to, n) -> to.delete(file(n) + "r", false));
            proxy.delete("/lab", true);
        }
    }

    private static String file(int number) {
        return "/lab/files/" + number % 100 + "/" + number;
    }

    private static void measure(Measured server, ClientProtocol proxy, int calls, String what, Call call) throws Exception {
        long[] times = new long[calls];
        double processor = server.processor();
        double seconds = Threads.run(THREADS, thread -> {
            for (int number = thread; number < calls; number += THREADS) {
                long start = System.nanoTime();
                call.run(proxy, number);
                times[number] = System.nanoTime() - start;
            }
        });
        Arrays.sort(times);
        server.note(what + " (per s)", calls / seconds);
        server.note(what + ", p99 (ms)", times[calls * 99 / 100] / 1e6);
        server.note("processor of the server for 1,000 " + what + " (s)", (server.processor() - processor) * 1000 / calls);
    }
}
