package stormwell.clients;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** Binds the contract tests to a server that runs already. */
public final class ServerContract extends AbstractFSContract {
    /** Which server the suites that run now are about. */
    static String address;

    ServerContract(Configuration configuration) {
        super(configuration);
        addConfResource("contract.xml");
        Side.set(configuration, address);
        // Files of several blocks without large files: the tests write some kilobytes.
        configuration.setInt("dfs.blocksize", 1024);
        configuration.setInt("dfs.bytes-per-checksum", 512);
    }

    @Override
    public FileSystem getTestFileSystem() throws IOException {
        return FileSystem.get(URI.create(address), getConf());
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
