package stormwell.clients;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSMainOperationsBaseTest;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextURIBase;
import org.apache.hadoop.fs.FileContextUtilBase;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileSystemContractBaseTest;
import org.apache.hadoop.fs.Options.HandleOpt;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.TestFcHdfsCreateMkdir;
import org.apache.hadoop.fs.TestFcHdfsPermission;
import org.apache.hadoop.fs.TestFcHdfsSetUMask;
import org.apache.hadoop.fs.TestHDFSFileContextMainOperations;
import org.apache.hadoop.fs.contract.AbstractContractAppendTest;
import org.apache.hadoop.fs.contract.AbstractContractBulkDeleteTest;
import org.apache.hadoop.fs.contract.AbstractContractConcatTest;
import org.apache.hadoop.fs.contract.AbstractContractContentSummaryTest;
import org.apache.hadoop.fs.contract.AbstractContractCopyFromLocalTest;
import org.apache.hadoop.fs.contract.AbstractContractCreateTest;
import org.apache.hadoop.fs.contract.AbstractContractDeleteTest;
import org.apache.hadoop.fs.contract.AbstractContractGetFileStatusTest;
import org.apache.hadoop.fs.contract.AbstractContractLeaseRecoveryTest;
import org.apache.hadoop.fs.contract.AbstractContractMkdirTest;
import org.apache.hadoop.fs.contract.AbstractContractMultipartUploaderTest;
import org.apache.hadoop.fs.contract.AbstractContractOpenTest;
import org.apache.hadoop.fs.contract.AbstractContractPathHandleTest;
import org.apache.hadoop.fs.contract.AbstractContractRenameTest;
import org.apache.hadoop.fs.contract.AbstractContractRootDirectoryTest;
import org.apache.hadoop.fs.contract.AbstractContractSafeModeTest;
import org.apache.hadoop.fs.contract.AbstractContractSeekTest;
import org.apache.hadoop.fs.contract.AbstractContractSetTimesTest;
import org.apache.hadoop.fs.contract.AbstractContractUnbufferTest;
import org.apache.hadoop.fs.contract.AbstractContractVectoredReadTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.apache.hadoop.hdfs.server.namenode.FSAclBaseTest;
import org.apache.hadoop.hdfs.server.namenode.FSXAttrBaseTest;
import org.apache.hadoop.io.wrappedio.impl.TestWrappedIO;
import org.junit.Before;
import org.junit.BeforeClass;

/** Hadoop's FileSystem contract tests, each bound to the server that {@link ServerContract} names. */
public final class ContractSuites {
    private ContractSuites() {}

    /** The suites that may run against two servers at a time. */
    static final Class<?>[] ALL = {
        Append.class,
        BulkDelete.class,
        Concat.class,
        ContentSummary.class,
        CopyFromLocal.class,
        Create.class,
        Delete.class,
        GetFileStatus.class,
        LeaseRecovery.class,
        Mkdir.class,
        MultipartUploader.class,
        Open.class,
        PathHandle.class,
        Rename.class,
        RootDirectory.class,
        SafeMode.class,
        Seek.class,
        SetTimes.class,
        Unbuffer.class,
        VectoredRead.class,
        WrappedIo.class,
    };

    /** The suites that keep their server in static fields: one at a time. */
    static final Class<?>[] ALONE = {
        Acl.class,
        XAttr.class,
        FileSystemBase.class,
        MainOperations.class,
        ContextUri.class,
        ContextUtil.class,
        // HDFS's own, as they are.
        TestHDFSFileContextMainOperations.class,
        TestFcHdfsCreateMkdir.class,
        TestFcHdfsPermission.class,
        TestFcHdfsSetUMask.class,
    };

    public static class Append extends AbstractContractAppendTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class BulkDelete extends AbstractContractBulkDeleteTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class Concat extends AbstractContractConcatTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class ContentSummary extends AbstractContractContentSummaryTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class CopyFromLocal extends AbstractContractCopyFromLocalTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class Create extends AbstractContractCreateTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class Delete extends AbstractContractDeleteTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class GetFileStatus extends AbstractContractGetFileStatusTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class LeaseRecovery extends AbstractContractLeaseRecoveryTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class Mkdir extends AbstractContractMkdirTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class MultipartUploader extends AbstractContractMultipartUploaderTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }

        @Override
        protected int partSizeInBytes() {
            return 1024;
        }

        @Override
        protected boolean finalizeConsumesUploadIdImmediately() {
            return true;
        }

        @Override
        protected boolean supportsConcurrentUploadsToSamePath() {
            return true;
        }
    }

    public static class Open extends AbstractContractOpenTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class PathHandle extends AbstractContractPathHandleTest {
        public PathHandle(String name, HandleOpt[] options, boolean serialized) {
            super(name, options, serialized);
        }

        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class Rename extends AbstractContractRenameTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class RootDirectory extends AbstractContractRootDirectoryTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class SafeMode extends AbstractContractSafeModeTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class Seek extends AbstractContractSeekTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class SetTimes extends AbstractContractSetTimesTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class Unbuffer extends AbstractContractUnbufferTest {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class VectoredRead extends AbstractContractVectoredReadTest {
        public VectoredRead(String buffers) {
            super(buffers);
        }

        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class WrappedIo extends TestWrappedIO {
        @Override
        protected AbstractFSContract createContract(Configuration configuration) {
            return new ServerContract(configuration);
        }
    }

    public static class Acl extends FSAclBaseTest {
        @BeforeClass
        public static void init() throws IOException {
            conf = new Configuration();
            startCluster();
        }
    }

    public static class XAttr extends FSXAttrBaseTest {}

    /** The oldest of Hadoop's suites about a file system. */
    public static class FileSystemBase extends FileSystemContractBaseTest {
        @Before
        public void setUp() throws IOException {
            Configuration configuration = configuration();
            configuration.set("fs.permissions.umask-mode", TEST_UMASK);
            fs = FileSystem.newInstance(configuration);
        }

        @Override
        protected String getDefaultWorkingDirectory() {
            return "/user/" + System.getProperty("user.name");
        }

        @Override
        protected int getGlobalTimeout() {
            return 60_000;
        }
    }

    /** What programs do with a file system. */
    public static class MainOperations extends FSMainOperationsBaseTest {
        public MainOperations() {
            super("/main");
        }

        @Override
        protected FileSystem createFileSystem() throws IOException {
            return FileSystem.newInstance(configuration());
        }

        @Override
        protected Path getDefaultWorkingDirectory() {
            return new Path("/user/" + System.getProperty("user.name")).makeQualified(fSys.getUri(), null);
        }
    }

    /** The newer interface, with names that are addresses. */
    public static class ContextUri extends FileContextURIBase {
        @Override
        @Before
        public void setUp() throws Exception {
            fc1 = context();
            fc2 = fc1;
            super.setUp();
        }
    }

    public static class ContextUtil extends FileContextUtilBase {
        @Override
        @Before
        public void setUp() throws Exception {
            fc = context();
            super.setUp();
        }
    }

    private static Configuration configuration() {
        Configuration configuration = new Configuration();
        ServerContract.configure(configuration);
        return configuration;
    }

    private static FileContext context() throws IOException {
        return FileContext.getFileContext(URI.create(ServerContract.address()), configuration());
    }
}
