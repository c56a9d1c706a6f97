package stormwell.clients;

import java.io.IOException;
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
import org.apache.hadoop.conf.Configuration;

/** A server that is measured: its address, its processes, and the figures so far. */
final class Measured {
    /** Ticks of /proc in a second. */
    private static final double TICKS = 100;
    private static final double MB = 1e6;
    private static final int PAGE = 4096;

    final String name;
    final Configuration configuration;
    private final String[] processes;
    private final Map<String, List<Double>> figures = new LinkedHashMap<>();

    Measured(String name, String address, String processes) {
        this.name = name;
        this.configuration = Side.configuration(address);
        this.processes = processes.split(",");
    }

    /** Seconds of processor time that its processes have used. */
    double processor() throws IOException {
        long ticks = 0;
        for (String process : processes) {
            String stat = Files.readString(Path.of("/proc", process, "stat"));
            // The name of the program may hold blanks; it ends at the last bracket.
            String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
            ticks += Long.parseLong(fields[11]) + Long.parseLong(fields[12]);
        }
        return ticks / TICKS;
    }

    /** Waits until its processes do next to nothing, a minute at the most. */
    void settle() throws IOException, InterruptedException {
        double before = processor();
        for (int tries = 0; tries < 120; tries++) {
            Thread.sleep(500);
            double now = processor();
            if (now - before <= 0.02) {
                return;
            }
            before = now;
        }
    }

    /** Memory that its processes hold, in MB. */
    double memory() throws IOException {
        long pages = 0;
        for (String process : processes) {
            pages += Long.parseLong(Files.readString(Path.of("/proc", process, "statm")).split(" ")[1]);
        }
        return pages * PAGE / MB;
    }

    /** Memory of its processes that belongs to no file, in MB. */
    double anonymous() throws IOException {
        long kibibytes = 0;
        for (String process : processes) {
            for (String line : Files.readAllLines(Path.of("/proc", process, "status"))) {
                if (line.startsWith("RssAnon:")) {
                    kibibytes += Long.parseLong(line.replaceAll("\\D", ""));
                }
            }
        }
        return kibibytes * 1024 / MB;
    }

    void note(String what, double figure) {
        figures.computeIfAbsent(what, key -> new ArrayList<>()).add(figure);
    }

    /** Drops the figures of the round that warmed up, except those of memory. */
    void forget() {
        figures.keySet().removeIf(what -> !what.startsWith("memory"));
    }

    /** Prints medians, and how far the figures spread, of all servers; the last column compares the second with the first. */
    static void table(List<Measured> servers, Path file) throws IOException {
        Set<String> rows = new LinkedHashSet<>();
        StringBuilder text = new StringBuilder("| what |");
        for (Measured server : servers) {
            rows.addAll(server.figures.keySet());
            text.append(' ').append(server.name).append(" |");
        }
        text.append(" ratio |\n|---|").append("---|".repeat(servers.size())).append("---|\n");
        for (String row : rows) {
            text.append("| ").append(row).append(" |");
            for (Measured server : servers) {
                text.append(' ').append(server.shown(row)).append(" |");
            }
            double first = servers.get(0).median(row);
            double last = servers.get(servers.size() - 1).median(row);
            text.append(String.format(Locale.ROOT, " %.2f |%n", last / first));
        }
        System.out.print(text);
        Files.writeString(file, text);
    }

    private double median(String row) {
        List<Double> sorted = new ArrayList<>(figures.getOrDefault(row, List.of(Double.NaN)));
        Collections.sort(sorted);
        int middle = sorted.size() / 2;
        return sorted.size() % 2 == 1 ? sorted.get(middle) : (sorted.get(middle - 1) + sorted.get(middle)) / 2;
    }

    private String shown(String row) {
        List<Double> all = figures.getOrDefault(row, List.of(Double.NaN));
        double median = median(row);
        String form = median >= 100 ? "%.0f" : "%.2f";
        String middle = String.format(Locale.ROOT, form, median);
        return all.size() < 2 ? middle : String.format(Locale.ROOT, "%s (" + form + " to " + form + ")", middle,
            Collections.min(all), Collections.max(all));
    }
}
