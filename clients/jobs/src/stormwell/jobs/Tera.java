package stormwell.jobs;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.examples.terasort.TeraGen;
import org.apache.hadoop.examples.terasort.TeraSort;
import org.apache.hadoop.examples.terasort.TeraValidate;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.util.ToolRunner;
import org.apache.log4j.AppenderSkeleton;
import org.apache.log4j.Level;
import org.apache.log4j.Logger;
import org.apache.log4j.spi.LoggingEvent;

/** TeraGen, TeraSort, TeraValidate: what is sorted has the sum of what was generated, before it was written. */
final class Tera {
    private static final int ROWS = 1_000_000;
    private static final int ROW = 100;
    /** What TeraGen says in the log about the sum of all rows. */
    private static final Pattern SUM = Pattern.compile("CHECKSUM=(\\d+)");

    private Tera() {}

    static void run(Configuration configuration) throws Exception {
        configuration.setInt("mapreduce.job.maps", 4);
        configuration.setInt("mapreduce.job.reduces", 2);
        FileSystem files = FileSystem.get(configuration);
        Heard heard = new Heard();
        Logger log = Logger.getLogger(Job.class);
        log.setLevel(Level.INFO);
        log.setAdditivity(false);
        log.addAppender(heard);
        Jobs.equal(ToolRunner.run(configuration, new TeraGen(), new String[] {"" + ROWS, "/tera/in"}), 0, "TeraGen");
        log.removeAppender(heard);
        log.setLevel(Level.WARN);
        log.setAdditivity(true);
        Jobs.equal(length(files, "/tera/in"), (long) ROWS * ROW, "bytes that TeraGen wrote");
        Jobs.equal(ToolRunner.run(configuration, new TeraSort(), new String[] {"/tera/in", "/tera/out"}), 0, "TeraSort");
        Jobs.equal(length(files, "/tera/out"), (long) ROWS * ROW, "bytes that TeraSort wrote");
        String[] words = {"/tera/out", "/tera/report"};
        Jobs.equal(ToolRunner.run(configuration, new TeraValidate(), words), 0, "TeraValidate");
        // A row out of order would be a line of its own.
        Jobs.equal(lines(files, "/tera/report"), List.of("checksum\t" + Long.toHexString(heard.sum)), "report of TeraValidate");
        files.delete(new Path("/tera"), true);
    }

    private static long length(FileSystem files, String directory) throws IOException {
        long sum = 0;
        for (FileStatus file : files.globStatus(new Path(directory, "part-*"))) {
            sum += file.getLen();
        }
        return sum;
    }

    /** The lines of all parts of a job's output. */
    static List<String> lines(FileSystem files, String directory) throws IOException {
        List<String> lines = new ArrayList<>();
        for (FileStatus file : files.globStatus(new Path(directory, "part-*"))) {
            try (BufferedReader reader = new BufferedReader(new InputStreamReader(files.open(file.getPath())))) {
                reader.lines().forEach(lines::add);
            }
        }
        return lines;
    }

    /** Listens to the log for the sum. */
    private static final class Heard extends AppenderSkeleton {
        private long sum;

        @Override
        protected void append(LoggingEvent event) {
            Matcher matcher = SUM.matcher(event.getRenderedMessage());
            if (matcher.find()) {
                sum = Long.parseLong(matcher.group(1));
            }
        }

        @Override
        public void close() {}

        @Override
        public boolean requiresLayout() {
            return false;
        }
    }
}
