package stormwell.clients;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** Binds the contract tests to a server that runs already. */
public final class ServerContract extends AbstractFSContract {
    /** Which server the suites are about that this thread and those that it starts run. */
    private static final InheritableThreadLocal<String> ADDRESS = new InheritableThreadLocal<>();

    ServerContract(Configuration configuration) {
        super(configuration);
        addConfResource("contract.xml");
        configure(configuration);
    }

    /** From now on suites of this thread are about the server at this address. */
    static void choose(String address) {
        ADDRESS.set(address);
    }

    /** The address of the server that the suites of this thread are about. */
    public static String address() {
        return ADDRESS.get();
    }

    /** What a client needs to reach that server, with files of several blocks: the tests write some kilobytes. */
    public static void configure(Configuration configuration) {
        Side.set(configuration, address());
        configuration.setInt("dfs.blocksize", 1024);
        configuration.setInt("dfs.bytes-per-checksum", 512);
    }

    @Override
    public FileSystem getTestFileSystem() throws IOException {
        return FileSystem.get(URI.create(address()), getConf());
    }

    @Override
    public String getScheme() {
        return "hdfs";
    }

    @Override
    public Path getTestPath() {
        return new Path("/test");
    }
}
