package stormwell.clients;

import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;

/** One of the two servers that are compared: its address, a local directory of its own, what is replaced in its output. */
final class Side {
    /** Times as `ls` and `stat` print them, in every form. */
    private static final Pattern TIME = Pattern.compile("\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d(:\\d\\d)?");
    /** Milliseconds since 1970, and the names of trash checkpoints (yyMMddHHmmss). */
    private static final Pattern MILLISECONDS = Pattern.compile("(?<!\\d)(1[6-9]\\d{11}|2\\d{11})(?!\\d)");
    /** Ids of nodes, blocks and calls: different in every run. */
    private static final Pattern IDENTITY = Pattern.compile("(BP-[-0-9.]+|blk_-?\\d+_\\d+|blk_-?\\d+|inode \\d+|DFSClient_[-_A-Z0-9a-z]+)");

    final String name;
    final Configuration configuration;
    final Path local;
    private final URI address;

    Side(String name, String address, Path work) throws java.io.IOException {
        this.name = name;
        this.address = URI.create(address);
        this.local = Files.createDirectories(work.resolve(name));
        this.configuration = configuration(address);
    }

    /** Keeps what a command printed, for people who look into a difference. */
    void record(String command, String shown) throws java.io.IOException {
        Files.writeString(local.resolveSibling(name + ".txt"), "> " + command + "\n" + shown, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    /** What a user writes into core-site.xml, and one replica, because HDFS has one DataNode here. */
    static Configuration configuration(String address) {
        Configuration configuration = new HdfsConfiguration();
        set(configuration, address);
        return configuration;
    }

    /** The same, on a configuration that is there. */
    static void set(Configuration configuration, String address) {
        configuration.set("fs.defaultFS", address);
        configuration.set("fs.trash.interval", "60");
        configuration.set("dfs.replication", "1");
        // A refused connection is to fail the run at once, not after ten tries.
        configuration.set("ipc.client.connect.max.retries", "1");
    }

    /** The output with everything replaced that differs between two servers of the same behaviour. */
    String normalised(String output, boolean sizes) {
        String text = output.replace(local.toString(), "$LOCAL").replace(address.toString(), "hdfs://SERVER");
        text = text.replace(address.getAuthority(), "SERVER").replace("localhost:" + address.getPort(), "SERVER");
        if (sizes) {
            text = text.replace("SERVER", "0:0").replaceAll("Hostname: .*", "Hostname: HOST");
            text = text.replaceAll("-?\\d[\\d.,]*( [KMGT]?B)?", "N").replaceAll("[ \\t]+", " ");
        }
        text = TIME.matcher(text).replaceAll("TIME");
        text = MILLISECONDS.matcher(text).replaceAll("MILLISECONDS");
        text = IDENTITY.matcher(text).replaceAll(Matcher.quoteReplacement("IDENTITY"));
        return text;
    }
}
