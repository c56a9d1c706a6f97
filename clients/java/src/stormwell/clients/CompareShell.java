package stormwell.clients;

import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.zip.GZIPOutputStream;

/**
 * Runs every command of a list against HDFS and against Stormwell and compares what they print, line by line.
 * What each side printed is kept in the work directory as hdfs.txt and ours.txt.
 * Arguments: commands file, exceptions file, work directory, address of HDFS, address of Stormwell. Exit code 1 if they differ.
 */
public final class CompareShell {
    private CompareShell() {}

    public static void main(String[] arguments) throws Exception {
        Path work = Path.of(arguments[2]);
        Side hdfs = new Side("hdfs", arguments[3], work);
        Side ours = new Side("ours", arguments[4], work);
        fixtures(hdfs.local);
        fixtures(ours.local);
        Map<String, String> exceptions = Exceptions.read(Path.of(arguments[1]));
        Set<String> used = new HashSet<>();
        int commands = 0;
        int different = 0;
        int excepted = 0;
        long[] spent = new long[2];
        List<String> lines = Files.readAllLines(Path.of(arguments[0]));
        for (int number = 1; number <= lines.size(); number++) {
            String text = lines.get(number - 1).strip();
            if (text.isEmpty() || text.startsWith("#")) {
                continue;
            }
            Line line = Line.of(number, text);
            commands++;
            long begin = System.nanoTime();
            String left = shown(hdfs, line);
            long middle = System.nanoTime();
            String right = shown(ours, line);
            spent[0] += middle - begin;
            spent[1] += System.nanoTime() - middle;
            hdfs.record(text, left);
            ours.record(text, right);
            String reason = exceptions.get(text);
            used.add(text);
            if (left.equals(right) && reason == null) {
                continue;
            }
            if (left.equals(right)) {
                System.out.println("line " + number + " is listed as different but is equal now; strike it: " + text);
                different++;
            } else if (reason != null) {
                excepted++;
            } else {
                different++;
                System.out.println("line " + number + ": " + text);
                Difference.print(left, right);
            }
        }
        exceptions.keySet().removeAll(used);
        for (String left : exceptions.keySet()) {
            System.out.println("listed as different but no command: " + left);
            different++;
        }
        System.out.printf("%d commands, %d differ, %d more differ for a listed reason; %d ms on HDFS, %d ms on Stormwell%n",
            commands, different, excepted, spent[0] / 1_000_000, spent[1] / 1_000_000);
        System.exit(different == 0 ? 0 : 1);
    }

    private static String shown(Side side, Line line) throws Exception {
        Shell.Result result = Shell.run(side, line);
        return "exit code " + result.code() + "\n" + side.normalised(result.output(), line.sizes())
            + (result.errors().isEmpty() ? "" : "errors:\n" + side.normalised(result.errors(), line.sizes()));
    }

    /** The local files that the commands put: the same bytes on both sides. */
    private static void fixtures(Path local) throws Exception {
        Files.writeString(local.resolve("hello.txt"), "hello, world\n");
        Files.writeString(local.resolve("empty"), "");
        StringBuilder lines = new StringBuilder();
        for (int number = 0; number < 2000; number++) {
            lines.append("line ").append(number).append(" of the file that head and tail cut\n");
        }
        Files.writeString(local.resolve("lines.txt"), lines);
        byte[] noise = new byte[3_000_001];
        new Random(7).nextBytes(noise);
        Files.write(local.resolve("noise.bin"), noise);
        try (OutputStream packed = new GZIPOutputStream(Files.newOutputStream(local.resolve("packed.gz")))) {
            packed.write("packed text\n".getBytes());
        }
        Files.createDirectories(local.resolve("tree/deep/deeper"));
        Files.writeString(local.resolve("tree/a.txt"), "a\n");
        Files.writeString(local.resolve("tree/deep/b.txt"), "bb\n");
        Files.writeString(local.resolve("tree/deep/deeper/c.txt"), "ccc\n");
    }
}
