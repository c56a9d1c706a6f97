package stormwell.jobs;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;

/**
 * Hadoop's own jobs with the local job runner, everything that they read and write in a store; what they leave is checked.
 * Arguments: address of the store, work directory. Prints `kill` when whoever started it is to kill the server with -9 and to
 * start it again.
 */
public final class Jobs {
    private interface Step {
        void run() throws Exception;
    }

    /** What people read; what the jobs print goes to a file. */
    static final PrintStream SAID = System.out;

    private static int failed;
    private static int passed;

    private Jobs() {}

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        Path work = Path.of(arguments[1]);
        System.setOut(new PrintStream(work.resolve("jobs.out").toFile()));
        step("TestDFSIO", () -> DfsIo.run(configuration(address, work), work));
        step("Tera", () -> Tera.run(configuration(address, work)));
        step("wordcount", () -> WordCount.run(configuration(address, work), address, work));
        step("kill -9", () -> Kill.run(configuration(address, work), work));
        SAID.printf("%d steps passed, %d failed%n", passed, failed);
        // The file systems that the jobs opened have threads that go on.
        System.exit(failed == 0 ? 0 : 1);
    }

    private static void step(String name, Step step) {
        long begin = System.nanoTime();
        try {
            step.run();
            passed++;
            SAID.printf("%-12s ok      %6.2f s%n", name, (System.nanoTime() - begin) / 1e9);
        } catch (Throwable failure) {
            failed++;
            SAID.printf("%-12s FAILED  %6.2f s%n", name, (System.nanoTime() - begin) / 1e9);
            failure.printStackTrace(SAID);
        }
    }

    /** What a user sets, and where a job that runs in this process keeps what is not in the store. */
    static Configuration configuration(String address, Path work) throws IOException {
        Configuration configuration = new Configuration();
        configuration.set("fs.defaultFS", address);
        configuration.set("dfs.replication", "1");
        configuration.setClass("fs.hdfs.impl", Witness.class, FileSystem.class);
        configuration.set("mapreduce.framework.name", "local");
        configuration.set("hadoop.tmp.dir", Files.createDirectories(work.resolve("tmp")).toString());
        configuration.setInt("mapreduce.local.map.tasks.maximum", 2);
        configuration.setInt("mapreduce.local.reduce.tasks.maximum", 2);
        return configuration;
    }

    static void equal(Object got, Object wanted, String what) {
        if (!got.equals(wanted)) {
            throw new IllegalStateException(what + ": got " + got + ", wanted " + wanted);
        }
    }
}
