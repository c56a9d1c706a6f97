package stormwell.jobs;

import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.ChecksumOpt;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.util.Progressable;

/**
 * HDFS's own file system, with two differences for the files of TestDFSIO: it keeps when the first of them was opened and the last
 * one closed; and each is written and read at one of several addresses in turn, as a task uses the gateway of its own machine.
 */
public final class Timed extends DistributedFileSystem {
    /** Key: the addresses, with commas. The first is the file system's own. */
    static final String ADDRESSES = "stormwell.addresses";

    private static final AtomicLong FIRST = new AtomicLong();
    private static final AtomicLong LAST = new AtomicLong();

    private final List<FileSystem> others = new ArrayList<>();

    /** From now on other files count. */
    static void begin() {
        FIRST.set(Long.MAX_VALUE);
        LAST.set(Long.MIN_VALUE);
    }

    /** Seconds from the first opening to the last close. */
    static double seconds() {
        return (LAST.get() - FIRST.get()) / 1e9;
    }

    @Override
    public void initialize(URI address, Configuration configuration) throws IOException {
        super.initialize(address, configuration);
        Configuration plain = new Configuration(configuration);
        plain.setClass("fs.hdfs.impl", DistributedFileSystem.class, FileSystem.class);
        for (String other : configuration.getTrimmedStrings(ADDRESSES)) {
            if (!address.equals(URI.create(other))) {
                others.add(FileSystem.newInstance(URI.create(other), plain));
            }
        }
    }

    @Override
    public FSDataOutputStream create(Path path, FsPermission permission, EnumSet<CreateFlag> flags, int buffer,
            short replication, long block, Progressable progress, ChecksumOpt checksum) throws IOException {
        if (!counts(path)) {
            return super.create(path, permission, flags, buffer, replication, block, progress, checksum);
        }
        opened();
        FileSystem other = other(path);
        OutputStream stream = other == null
            ? super.create(path, permission, flags, buffer, replication, block, progress, checksum)
            : other.create(other.makeQualified(new Path(path.toUri().getPath())), permission, flags, buffer, replication, block,
                progress, checksum);
        return new FSDataOutputStream(stream, statistics) {
            @Override
            public void close() throws IOException {
                super.close();
                closed();
            }
        };
    }

    @Override
    public FSDataInputStream open(Path path, int buffer) throws IOException {
        if (!counts(path)) {
            return super.open(path, buffer);
        }
        opened();
        FileSystem other = other(path);
        FSDataInputStream stream = other == null
            ? super.open(path, buffer)
            : other.open(other.makeQualified(new Path(path.toUri().getPath())), buffer);
        return new FSDataInputStream(stream) {
            @Override
            public void close() throws IOException {
                super.close();
                closed();
            }
        };
    }

    private static boolean counts(Path path) {
        return path.toUri().getPath().contains(DfsIo.DATA);
    }

    /** Who serves a file; null: this one. TestDFSIO numbers its files. */
    private FileSystem other(Path path) {
        int turn = Integer.parseInt(path.getName().replaceAll("\\D", "")) % (others.size() + 1);
        return turn == 0 ? null : others.get(turn - 1);
    }

    private static void opened() {
        FIRST.accumulateAndGet(System.nanoTime(), Math::min);
    }

    private static void closed() {
        LAST.accumulateAndGet(System.nanoTime(), Math::max);
    }

    @Override
    public void close() throws IOException {
        for (FileSystem other : others) {
            other.close();
        }
        super.close();
    }
}
