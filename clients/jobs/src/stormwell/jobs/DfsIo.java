package stormwell.jobs;

import java.io.DataInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.TestDFSIO;
import org.apache.hadoop.util.ToolRunner;

/** TestDFSIO: writes files, appends to them, reads them; every byte is compared with what was written. */
final class DfsIo {
    static final int FILES = 8;
    private static final int MIB = 32;
    /** Where TestDFSIO keeps its files below the directory that it is given. */
    static final String DATA = "/io_data";

    private DfsIo() {}

    static void run(Configuration configuration, Path work) throws Exception {
        FileSystem files = FileSystem.get(configuration);
        long size = (long) MIB << 20;
        job(configuration, work, "-write", MIB);
        check(files, size);
        job(configuration, work, "-append", MIB);
        check(files, 2 * size);
        // It reads the first half: so much it is told.
        job(configuration, work, "-read", MIB);
        Jobs.equal(ToolRunner.run(configuration, new TestDFSIO(), new String[] {"-clean"}), 0, "TestDFSIO -clean");
    }

    /** Runs one of its jobs over all files; it says how many MiB it processed. */
    static void job(Configuration configuration, Path work, String kind, int mib) throws Exception {
        Path result = work.resolve("TestDFSIO" + kind + ".txt");
        Files.deleteIfExists(result);
        String[] words = {kind, "-nrFiles", "" + FILES, "-size", mib + "MB", "-resFile", result.toString()};
        Jobs.equal(ToolRunner.run(configuration, new TestDFSIO(), words), 0, "TestDFSIO " + kind);
        String said = Files.readString(result);
        String wanted = "(?s).*Total MBytes processed: *" + FILES * mib + "\\D.*";
        Jobs.equal(said.matches(wanted), true, "TestDFSIO " + kind + " said\n" + said);
    }

    /** All files have this size, and in it what was written. */
    private static void check(FileSystem files, long size) throws IOException {
        FileStatus[] found = files.listStatus(new org.apache.hadoop.fs.Path("/benchmarks/TestDFSIO" + DATA));
        Jobs.equal(found.length, FILES, "files of TestDFSIO");
        for (FileStatus file : found) {
            Jobs.equal(file.getLen(), size, "length of " + file.getPath());
            compare(files, file);
        }
    }

    /** Every byte of a file is what {@link Witness} wrote, and there are no more than it says. */
    static void compare(FileSystem files, FileStatus file) throws IOException {
        String path = file.getPath().toUri().getPath();
        byte[] wanted = new byte[1 << 20];
        byte[] got = new byte[wanted.length];
        try (DataInputStream stream = files.open(file.getPath())) {
            int length;
            for (long at = 0; at < file.getLen(); at += length) {
                length = (int) Math.min(got.length, file.getLen() - at);
                stream.readFully(got, 0, length);
                Witness.fill(path, at, wanted, length);
                int wrong = Arrays.mismatch(got, 0, length, wanted, 0, length);
                Jobs.equal(wrong, -1, "first wrong byte of " + path + " behind byte " + at);
            }
            Jobs.equal(stream.read(), -1, "what comes behind the end of " + path);
        }
    }
}
