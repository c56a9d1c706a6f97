package stormwell.jobs;

import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.examples.ExampleDriver;
import org.apache.hadoop.fs.FileSystem;

/** `hadoop jar hadoop-mapreduce-examples.jar wordcount`, as a program of its own, beside a count of our own. */
final class WordCount {
    private static final int FILES = 4;
    private static final int WORDS = 400_000;

    private WordCount() {}

    static void run(Configuration configuration, String address, Path work) throws Exception {
        FileSystem files = FileSystem.get(configuration);
        Map<String, Integer> counted = new TreeMap<>();
        Random random = new Random(5);
        for (int file = 0; file < FILES; file++) {
            OutputStream stream = files.create(new org.apache.hadoop.fs.Path("/words/in/" + file));
            try (PrintStream text = new PrintStream(stream)) {
                for (int word = 0; word < WORDS; word++) {
                    // Few words often, many seldom, as in a language.
                    String name = "w" + (int) Math.exp(random.nextDouble() * 10);
                    counted.merge(name, 1, Integer::sum);
                    text.print(name + (word % 12 == 11 ? "\n" : " "));
                }
            }
        }
        List<String> words = new ArrayList<>(List.of("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
        words.add("-Dstormwell.log=" + work.resolve("wordcount.log"));
        words.addAll(List.of("-cp", System.getProperty("java.class.path"), ExampleDriver.class.getName(), "wordcount"));
        words.addAll(List.of("-fs", address, "-D", "hadoop.tmp.dir=" + work.resolve("tmp"), "-D", "mapreduce.job.reduces=2"));
        words.addAll(List.of("/words/in", "/words/out"));
        Process process = new ProcessBuilder(words).directory(work.toFile())
            .redirectErrorStream(true).redirectOutput(work.resolve("wordcount.out").toFile()).start();
        Jobs.equal(process.waitFor(), 0, "wordcount");
        List<String> wanted = new ArrayList<>();
        counted.forEach((name, count) -> wanted.add(name + "\t" + count));
        List<String> got = Tera.lines(files, "/words/out");
        Collections.sort(wanted);
        Collections.sort(got);
        Jobs.equal(got.equals(wanted), true, got.size() + " words of " + wanted.size() + " with their counts");
        files.delete(new org.apache.hadoop.fs.Path("/words"), true);
    }
}
