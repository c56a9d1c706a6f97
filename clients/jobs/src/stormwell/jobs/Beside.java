package stormwell.jobs;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.TestDFSIO;
import org.apache.hadoop.util.ToolRunner;

/**
 * TestDFSIO on a real HDFS and on Stormwell, in alternated rounds, both on the same devices. Arguments: rounds, MiB in all files, numbers of
 * files (with commas), MB/s of all devices, work directory, names of the devices (with commas), then for each store: name, addresses
 * (with commas), ids of its processes (with commas). Prints two tables in Markdown: what the bars are about, and where it went.
 */
public final class Beside {
    private static final double MB = 1e6;
    private static final int SECTOR = 512;
    private static final double TICKS = 100;
    private static final int WARM_FILES = 8;
    private static final int WARM_MIB = 8;
    private static final String RATE = "MB/s";

    private static PrintStream said;
    private static Path work;
    private static String[] devices;
    private static double deviceRate;

    /** A store, and its figures by job and kind. */
    private record Store(String name, String[] addresses, String[] processes, Map<String, Map<String, List<Double>>> figures) {
        void note(String job, String kind, double figure) {
            figures.computeIfAbsent(job, key -> new LinkedHashMap<>()).computeIfAbsent(kind, key -> new ArrayList<>()).add(figure);
        }

        double median(String job, String kind) {
            List<Double> sorted = new ArrayList<>(figures.get(job).get(kind));
            Collections.sort(sorted);
            int middle = sorted.size() / 2;
            return sorted.size() % 2 == 1 ? sorted.get(middle) : (sorted.get(middle - 1) + sorted.get(middle)) / 2;
        }

        String shown(String job, String kind) {
            List<Double> all = figures.get(job).get(kind);
            String form = median(job, kind) >= 10 ? "%.0f" : "%.2f";
            String middle = String.format(Locale.ROOT, form, median(job, kind));
            return all.size() < 2 ? middle
                : String.format(Locale.ROOT, "%s (" + form + " to " + form + ")", middle, Collections.min(all), Collections.max(all));
        }
    }

    private Beside() {}

    public static void main(String[] arguments) throws Exception {
        int rounds = Integer.parseInt(arguments[0]);
        int mib = Integer.parseInt(arguments[1]);
        deviceRate = Double.parseDouble(arguments[3]);
        work = Path.of(arguments[4]);
        devices = arguments[5].split(",");
        List<Store> stores = new ArrayList<>();
        for (int index = 6; index < arguments.length; index += 3) {
            String[] lists = {arguments[index + 1], arguments[index + 2]};
            stores.add(new Store(arguments[index], lists[0].split(","), lists[1].split(","), new LinkedHashMap<>()));
        }
        // What the jobs print themselves goes to a file.
        said = System.out;
        System.setOut(new PrintStream(work.resolve("jobs.out").toFile()));
        for (Store store : stores) {
            both(store, "warm", WARM_FILES, WARM_MIB);
            store.figures.clear();
        }
        for (int round = 0; round < rounds; round++) {
            for (String files : arguments[2].split(",")) {
                for (int turn = 0; turn < stores.size(); turn++) {
                    // Who begins alternates.
                    Store store = stores.get((turn + round) % stores.size());
                    int count = Integer.parseInt(files);
                    both(store, count + " files of " + mib / count + " MiB", count, mib / count);
                }
            }
        }
        tables(stores);
        // The file systems that the jobs opened have threads that go on.
        System.exit(0);
    }

    /** Writes files, reads them and deletes them. */
    private static void both(Store store, String what, int files, int mib) throws Exception {
        Configuration configuration = Jobs.configuration(store.addresses[0], work);
        configuration.set(Timed.ADDRESSES, String.join(",", store.addresses));
        configuration.setClass("fs.hdfs.impl", Timed.class, FileSystem.class);
        // All files at once: 64 tasks are 8 on each of 8 machines.
        configuration.setInt("mapreduce.local.map.tasks.maximum", files);
        // Each task has a buffer for its output, which is one line here.
        configuration.setInt("mapreduce.task.io.sort.mb", 1);
        job(store, configuration, "-write", "write, " + what, files, mib);
        job(store, configuration, "-read", "read, " + what, files, mib);
        Jobs.equal(ToolRunner.run(configuration, new TestDFSIO(), new String[] {"-clean"}), 0, "TestDFSIO -clean");
    }

    private static void job(Store store, Configuration configuration, String kind, String job, int files, int mib) throws Exception {
        Path result = work.resolve("beside.txt");
        Files.deleteIfExists(result);
        // What is on stable media already is not written again by this; the cache can be dropped only then.
        new ProcessBuilder("sync").inheritIO().start().waitFor();
        Files.writeString(Path.of("/proc/sys/vm/drop_caches"), "3");
        Timed.begin();
        long[] before = moved();
        double machine = busy();
        double servers = used(store.processes);
        double client = ownUse();
        long begin = System.nanoTime();
        String[] words = {kind, "-nrFiles", "" + files, "-size", mib + "MB", "-resFile", result.toString()};
        Jobs.equal(ToolRunner.run(configuration, new TestDFSIO(), words), 0, "TestDFSIO " + kind);
        double whole = (System.nanoTime() - begin) / 1e9;
        machine = busy() - machine;
        servers = used(store.processes) - servers;
        client = ownUse() - client;
        String text = Files.readString(result);
        double megabytes = (double) files * mib * (1 << 20) / MB;
        Jobs.equal((long) figure(text, "Total MBytes processed"), (long) files * mib, "TestDFSIO " + kind + ": MiB in all");
        long[] after = moved();
        double sum = 0;
        double most = 0;
        for (int index = 0; index < after.length; index++) {
            double bytes = after[index] - before[index];
            sum += bytes;
            most = Math.max(most, bytes);
        }
        double gibibytes = megabytes * MB / (1 << 30);
        store.note(job, RATE, megabytes / Timed.seconds());
        store.note(job, "part of the devices", megabytes / Timed.seconds() / deviceRate);
        store.note(job, "moved by the devices / bytes of the files", sum / MB / megabytes);
        store.note(job, "the busiest device / the mean", most / (sum / after.length));
        store.note(job, "processors busy, all", machine / whole);
        store.note(job, "processor of the servers for a GiB (s)", servers / gibibytes);
        store.note(job, "processor of the client for a GiB (s)", client / gibibytes);
        // Hadoop's MB are MiB.
        store.note(job, "TestDFSIO's Throughput (MiB/s a file)", figure(text, "Throughput mb/sec"));
        store.note(job, "TestDFSIO's Average IO rate (MiB/s)", figure(text, "Average IO rate mb/sec"));
        Map<String, List<Double>> figures = store.figures.get(job);
        System.err.printf(Locale.ROOT, "%s, %s: %.2f s of %.2f s", store.name, job, Timed.seconds(), whole);
        figures.forEach((name, all) -> System.err.printf(Locale.ROOT, "; %s %.2f", name, all.get(all.size() - 1)));
        System.err.println();
    }

    private static void tables(List<Store> stores) {
        Store first = stores.get(0);
        Store last = stores.get(stores.size() - 1);
        String part = "part of the devices";
        StringBuilder rates = new StringBuilder("| TestDFSIO |");
        StringBuilder rest = new StringBuilder("| where it went | |");
        for (Store store : stores) {
            rates.append(' ').append(store.name).append(", MB/s | of the devices |");
            rest.append(' ').append(store.name).append(" |");
        }
        rates.append(" ratio |\n|---|").append("---|---|".repeat(stores.size())).append("---|\n");
        rest.append("\n|---|---|").append("---|".repeat(stores.size())).append('\n');
        for (String job : first.figures.keySet()) {
            rates.append("| ").append(job).append(" |");
            for (Store store : stores) {
                rates.append(' ').append(store.shown(job, RATE)).append(" | ").append(store.shown(job, part)).append(" |");
            }
            rates.append(String.format(Locale.ROOT, " %.2f |%n", last.median(job, RATE) / first.median(job, RATE)));
            Set<String> kinds = new LinkedHashSet<>(first.figures.get(job).keySet());
            kinds.removeAll(Set.of(RATE, part));
            for (String kind : kinds) {
                rest.append("| ").append(job).append(" | ").append(kind).append(" |");
                for (Store store : stores) {
                    rest.append(' ').append(store.shown(job, kind)).append(" |");
                }
                rest.append('\n');
            }
        }
        said.printf("%s%n%s", rates, rest);
        said.flush();
    }

    private static double figure(String text, String name) {
        Matcher line = Pattern.compile(Pattern.quote(name) + ": *([0-9.]+)").matcher(text);
        if (!line.find()) {
            throw new IllegalStateException("TestDFSIO did not say its " + name + ":\n" + text);
        }
        return Double.parseDouble(line.group(1));
    }

    /** Bytes that each device has read and written so far. */
    private static long[] moved() throws IOException {
        long[] bytes = new long[devices.length];
        for (int index = 0; index < devices.length; index++) {
            String[] fields = Files.readString(Path.of("/sys/block", devices[index], "stat")).trim().split("\\s+");
            bytes[index] = (Long.parseLong(fields[2]) + Long.parseLong(fields[6])) * SECTOR;
        }
        return bytes;
    }

    /** Seconds that all processors of the machine were not idle. */
    private static double busy() throws IOException {
        String[] fields = Files.readAllLines(Path.of("/proc/stat")).get(0).split("\\s+");
        long ticks = 0;
        // user nice system idle iowait irq softirq steal
        for (int index : new int[] {1, 2, 3, 6, 7, 8}) {
            ticks += Long.parseLong(fields[index]);
        }
        return ticks / TICKS;
    }

    private static double used(String... processes) throws IOException {
        long ticks = 0;
        for (String process : processes) {
            String stat = Files.readString(Path.of("/proc", process, "stat"));
            // The name of the program may hold blanks; it ends at the last bracket.
            String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
            ticks += Long.parseLong(fields[11]) + Long.parseLong(fields[12]);
        }
        return ticks / TICKS;
    }

    private static double ownUse() throws IOException {
        return used("self");
    }
}
