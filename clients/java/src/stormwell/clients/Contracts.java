package stormwell.clients;

import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs the contract suites against HDFS and against Stormwell. A test that fails on Stormwell alone must be in the list of known
 * failures, and what is in the list must fail. Arguments: list, work directory, address of HDFS (or `-`), address of Stormwell,
 * then names of suites (none: all). Leaves contract.tsv (suite, test, verdict on HDFS, on Stormwell) in the work directory.
 */
public final class Contracts {
    private Contracts() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> known = Exceptions.read(Path.of(arguments[0]));
        Path work = Path.of(arguments[1]);
        List<String> wanted = List.of(arguments).subList(4, arguments.length);
        List<String> table = new ArrayList<>();
        int[] count = new int[5];
        List<Class<?>> suites = new ArrayList<>(List.of(ContractSuites.ALL));
        suites.addAll(List.of(ContractSuites.ALONE));
        suites.removeIf(suite -> !wanted.isEmpty() && !wanted.contains(suite.getSimpleName()));
        for (Class<?> suite : suites) {
            long begin = System.nanoTime();
            List<Map<String, String>> both = both(suite, arguments[2], arguments[3], work);
            Map<String, String> hdfs = both.get(0);
            Map<String, String> ours = both.get(1);
            System.out.printf("%-18s %3d tests: %s on HDFS; %s on Stormwell; %d ms%n", suite.getSimpleName(), ours.size(),
                summary(hdfs), summary(ours), (System.nanoTime() - begin) / 1_000_000);
            for (Map.Entry<String, String> test : ours.entrySet()) {
                String name = suite.getSimpleName() + "." + test.getKey();
                String there = hdfs.getOrDefault(test.getKey(), "absent");
                table.add(suite.getSimpleName() + "\t" + test.getKey() + "\t" + word(there) + "\t" + word(test.getValue()));
                judge(name, there, test.getValue(), known.remove(name), count);
            }
        }
        Files.write(work.resolve("contract.tsv"), table);
        if (wanted.isEmpty()) {
            for (String name : known.keySet()) {
                System.out.println("listed as failing but there is no such test: " + name);
                count[0]++;
            }
        }
        System.out.printf("%d tests: %d passed, %d skipped, %d fail on HDFS too, %d fail for a listed reason, %d found%n",
            table.size(), count[1], count[2], count[3], count[4], count[0]);
        System.exit(count[0] == 0 ? 0 : 1);
    }

    /** Counts a test: [found, passed, skipped, shared with HDFS, listed], and prints what was found. */
    private static void judge(String name, String there, String here, String reason, int[] count) {
        boolean failed = word(here).equals("failed");
        if (reason != null && !failed) {
            System.out.println("listed as failing but it does not fail any more; strike it: " + name);
            count[0]++;
        } else if (!failed) {
            count[here.equals("passed") ? 1 : 2]++;
        } else if (word(there).equals("failed")) {
            count[3]++;
        } else if (reason != null) {
            count[4]++;
        } else {
            System.out.println("FAILED " + name + " (HDFS: " + word(there) + ")\n    " + here.substring("failed ".length()));
            count[0]++;
        }
    }

    /** The verdicts on HDFS (none if it is `-`) and on Stormwell; both at a time where the suite can. */
    private static List<Map<String, String>> both(Class<?> suite, String hdfs, String ours, Path work) throws Exception {
        boolean together = List.of(ContractSuites.ALL).contains(suite);
        CompletableFuture<Map<String, String>> there = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                there.complete(hdfs.equals("-") ? new TreeMap<>() : run(suite, hdfs, work, "hdfs"));
            } catch (Exception failure) {
                there.completeExceptionally(failure);
            }
        });
        thread.start();
        if (!together) {
            thread.join();
        }
        Map<String, String> here = run(suite, ours, work, "ours");
        Map<String, String> verdicts = there.get();
        FileSystem.closeAll();
        return List.of(verdicts, here);
    }

    private static String word(String verdict) {
        return verdict.split(" ", 2)[0];
    }

    private static String summary(Map<String, String> verdicts) {
        long passed = verdicts.values().stream().filter(verdict -> verdict.equals("passed")).count();
        long failed = verdicts.values().stream().filter(verdict -> word(verdict).equals("failed")).count();
        return passed + " passed " + failed + " failed";
    }

    /** The verdict on each test: `passed`, `skipped`, or `failed WHY`. */
    private static Map<String, String> run(Class<?> suite, String address, Path work, String side) throws Exception {
        ServerContract.choose(address);
        empty(address);
        Map<String, String> verdicts = new TreeMap<>();
        JUnitCore core = new JUnitCore();
        try (PrintStream traces = new PrintStream(Files.newOutputStream(work.resolve(side + "-" + suite.getSimpleName() + ".txt")))) {
            core.addListener(new Listener(verdicts, traces));
            core.run(Request.aClass(suite));
        }
        return verdicts;
    }

    /** Some suites expect that nobody before them used their names. */
    private static void empty(String address) throws Exception {
        try (FileSystem files = FileSystem.newInstance(Side.configuration(address))) {
            for (FileStatus status : files.listStatus(new org.apache.hadoop.fs.Path("/"))) {
                files.delete(status.getPath(), true);
            }
        }
    }

    /** Collects verdicts, and the stack traces in a file of the suite. */
    private static final class Listener extends RunListener {
        private final Map<String, String> verdicts;
        private final PrintStream traces;

        Listener(Map<String, String> verdicts, PrintStream traces) {
            this.verdicts = verdicts;
            this.traces = traces;
        }

        @Override
        public void testStarted(Description test) {
            verdicts.put(name(test), "passed");
        }

        @Override
        public void testFailure(Failure failure) {
            String message = String.valueOf(failure.getException()).lines().limit(4).reduce((a, b) -> a + " | " + b).orElse("");
            verdicts.put(name(failure.getDescription()), "failed " + message.substring(0, Math.min(600, message.length())));
            traces.println("== " + name(failure.getDescription()) + "\n" + failure.getTrace());
        }

        @Override
        public void testAssumptionFailure(Failure failure) {
            verdicts.put(name(failure.getDescription()), "skipped");
        }

        @Override
        public void testIgnored(Description test) {
            verdicts.put(name(test), "skipped");
        }

        private static String name(Description test) {
            return test.getMethodName() == null ? "(whole suite)" : test.getMethodName().replaceAll("\\s+", "");
        }
    }
}
