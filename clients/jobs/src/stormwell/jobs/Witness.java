package stormwell.jobs;

import java.io.IOException;
import java.io.OutputStream;
import java.util.EnumSet;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Options.ChecksumOpt;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.util.Progressable;

/**
 * HDFS's own file system, with two differences for the files of TestDFSIO: in place of its zeros other bytes are written, none
 * like those beside it, and it is remembered what was acknowledged of each file.
 */
public final class Witness extends DistributedFileSystem {
    /** Key: the files of TestDFSIO are synced whenever so many bytes were written; 0: never. */
    static final String SYNC = "stormwell.sync";

    /** What is known of a file: so many bytes of it were acknowledged as synced, and whether its close was. */
    record Known(long synced, boolean closed) {}

    static final Map<String, Known> FILES = new ConcurrentHashMap<>();

    /** The bytes of a file from here on. */
    static void fill(String path, long from, byte[] bytes, int length) {
        int seed = path.hashCode();
        for (int index = 0; index < length; index++) {
            long at = from + index;
            bytes[index] = (byte) (seed + at * 31 + (at >> 8) * 17 + (at >> 16) * 13 + (at >> 24) * 7);
        }
    }

    @Override
    public FSDataOutputStream create(Path path, FsPermission permission, EnumSet<CreateFlag> flags, int buffer,
            short replication, long block, Progressable progress, ChecksumOpt checksum) throws IOException {
        return watched(path, super.create(path, permission, flags, buffer, replication, block, progress, checksum));
    }

    @Override
    public FSDataOutputStream append(Path path, EnumSet<CreateFlag> flags, int buffer, Progressable progress) throws IOException {
        return watched(path, super.append(path, flags, buffer, progress));
    }

    private FSDataOutputStream watched(Path path, FSDataOutputStream stream) throws IOException {
        String name = path.toUri().getPath();
        return name.contains(DfsIo.DATA) ? new FSDataOutputStream(new Watched(name, stream, getConf().getInt(SYNC, 0)), statistics) : stream;
    }

    private static final class Watched extends OutputStream {
        private final String path;
        private final FSDataOutputStream stream;
        private final int every;
        private byte[] bytes = new byte[0];
        private long written;
        private long synced;

        Watched(String path, FSDataOutputStream stream, int every) {
            this.path = path;
            this.stream = stream;
            this.every = every;
            this.written = stream.getPos();
            this.synced = written;
            FILES.put(path, new Known(synced, false));
        }

        @Override
        public void write(int one) throws IOException {
            write(new byte[1], 0, 1);
        }

        @Override
        public void write(byte[] zeros, int from, int length) throws IOException {
            if (bytes.length < length) {
                bytes = new byte[length];
            }
            fill(path, written, bytes, length);
            stream.write(bytes, 0, length);
            written += length;
            if (every > 0 && written - synced >= every) {
                stream.hsync();
                synced = written;
                FILES.put(path, new Known(synced, false));
            }
        }

        @Override
        public void close() throws IOException {
            stream.close();
            FILES.put(path, new Known(written, true));
        }
    }
}
