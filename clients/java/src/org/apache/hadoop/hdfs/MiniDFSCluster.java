package org.apache.hadoop.hdfs;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.server.namenode.FSNamesystem;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.hdfs.server.namenode.NameNodeAdapter;
import stormwell.clients.ServerContract;

/**
 * Stands in for the cluster that some of Hadoop's suites start for themselves: the server that runs
 * already. Starts and ends nothing; what the suites look up inside a NameNode is asked over the wire.
 */
public class MiniDFSCluster {
    private final Configuration configuration;

    private MiniDFSCluster(Configuration configuration) {
        this.configuration = configuration;
        ServerContract.configure(configuration);
    }

    /** As much of the real builder as the suites call. */
    public static class Builder {
        private final Configuration configuration;

        public Builder(Configuration configuration) {
            this.configuration = configuration;
        }

        public Builder numDataNodes(int count) {
            return this;
        }

        public Builder format(boolean format) {
            return this;
        }

        public MiniDFSCluster build() {
            return new MiniDFSCluster(configuration);
        }
    }

    public void waitActive() {}

    public void waitClusterUp() {}

    public URI getURI(int nameNode) {
        return URI.create(ServerContract.address());
    }

    public void shutdown() {}

    public DistributedFileSystem getFileSystem() throws IOException {
        return (DistributedFileSystem) FileSystem.newInstance(URI.create(ServerContract.address()), configuration);
    }

    public Configuration getConfiguration(int nameNode) {
        return configuration;
    }

    /** Nobody asks it for anything but to restart, which is left out. */
    public NameNode getNameNode() {
        return null;
    }

    /** A namesystem in which only this can be asked: whether a path has an ACL. */
    public FSNamesystem getNamesystem() throws IOException {
        return NameNodeAdapter.namesystem(getFileSystem());
    }
}
