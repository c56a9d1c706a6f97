package stormwell.clients;

import java.io.IOException;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.XAttrSetFlag;

/**
 * A client that knows two gateways by an HA list, which are killed in turn under its calls: no call fails, and none is done twice, which
 * a rename, a delete, an attribute that must be new and a create that must not replace would show. Prints `kill` for each kill and
 * reads a line when the gateway is back. Arguments: the two addresses, `host:port`.
 */
public final class Failover {
    private static final int THREADS = 4;
    private static final int KILLS = 6;
    /** Files of all threads between two kills. */
    private static final int BETWEEN = 60;

    private Failover() {}

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = Side.configuration("hdfs://stormwell");
        configuration.set("dfs.nameservices", "stormwell");
        configuration.set("dfs.ha.namenodes.stormwell", "one,two");
        configuration.set("dfs.namenode.rpc-address.stormwell.one", arguments[0]);
        configuration.set("dfs.namenode.rpc-address.stormwell.two", arguments[1]);
        configuration.set("dfs.client.failover.proxy.provider.stormwell",
            "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider");
        FileSystem files = FileSystem.get(configuration);
        AtomicInteger made = new AtomicInteger();
        AtomicInteger enough = new AtomicInteger();
        AtomicLong longest = new AtomicLong();
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        List<Future<Set<String>>> ends = new ArrayList<>();
        for (int thread = 0; thread < THREADS; thread++) {
            String directory = "/ha/" + thread;
            ends.add(threads.submit(() -> work(files, directory, made, enough, longest)));
        }
        for (int kill = 1; kill <= KILLS; kill++) {
            while (made.get() < kill * BETWEEN && ends.stream().noneMatch(Future::isDone)) {
                Thread.sleep(1);
            }
            System.out.println("kill");
            System.out.flush();
            if (System.in.read() < 0) {
                throw new IOException("nobody kills");
            }
        }
        enough.set(made.get() + BETWEEN);
        threads.shutdown();
        for (int thread = 0; thread < THREADS; thread++) {
            Set<String> expected = ends.get(thread).get();
            Set<String> there = new TreeSet<>();
            for (FileStatus status : files.listStatus(new Path("/ha/" + thread))) {
                there.add(status.getPath().getName());
            }
            if (!there.equals(expected)) {
                throw new IllegalStateException("in /ha/" + thread + " is " + there + " and not " + expected);
            }
        }
        System.out.printf("%d files through two gateways that were killed %d times; the longest call took %.1f s%n", made.get(), KILLS,
            longest.get() / 1e9);
        System.exit(0);
    }

    /** Makes, names, marks and deletes files until there are enough; the names that must be there. */
    private static Set<String> work(FileSystem files, String directory, AtomicInteger made, AtomicInteger enough, AtomicLong longest)
        throws Exception {
        Set<String> names = new TreeSet<>();
        check(timed(longest, () -> files.mkdirs(new Path(directory))), "mkdirs");
        for (int number = 0; enough.get() == 0 || made.get() < enough.get(); number++) {
            Path first = new Path(directory, "f" + number);
            Path second = new Path(directory, "g" + number);
            timed(longest, () -> {
                files.create(first, false).close();
                return true;
            });
            check(timed(longest, () -> files.rename(first, second)), "rename to " + second);
            timed(longest, () -> {
                files.setXAttr(second, "user.once", new byte[] {1}, EnumSet.of(XAttrSetFlag.CREATE));
                return true;
            });
            if (number % 3 == 0) {
                check(timed(longest, () -> files.delete(second, false)), "delete of " + second);
            } else {
                names.add(second.getName());
            }
            made.incrementAndGet();
        }
        return names;
    }

    private static boolean timed(AtomicLong longest, Callable<Boolean> call) throws Exception {
        long begin = System.nanoTime();
        boolean answer = call.call();
        longest.accumulateAndGet(System.nanoTime() - begin, Math::max);
        return answer;
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException("false was answered to " + what);
        }
    }
}
