package org.apache.hadoop.hdfs.server.namenode;

import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyInt;
import static org.mockito.ArgumentMatchers.anyString;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import java.io.IOException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.AclStatus;

/** Stands in for the test class of the same name, which looks into a NameNode of its own process. */
public class NameNodeAdapter {
    private NameNodeAdapter() {}

    /** A server that runs already does not enter safe mode for a suite. */
    public static void enterSafeMode(NameNode nameNode, boolean resourcesLow) {}

    /** A server that runs already writes no checkpoint for a suite. */
    public static void saveNamespace(NameNode nameNode) {}

    /** A namesystem whose nodes know one thing, asked over the wire: their ACL. */
    public static FSNamesystem namesystem(FileSystem files) throws IOException {
        FSNamesystem names = mock(FSNamesystem.class);
        FSDirectory directory = mock(FSDirectory.class);
        when(names.getFSDirectory()).thenReturn(directory);
        when(directory.getINode(anyString(), any())).thenAnswer(call -> {
            AclFeature feature = feature(files.getAclStatus(new Path((String) call.getArgument(0))));
            INode node = mock(INode.class);
            when(node.getAclFeature(anyInt())).thenReturn(feature);
            return node;
        });
        return names;
    }

    private static AclFeature feature(AclStatus status) {
        return status.getEntries().isEmpty() ? null : new AclFeature(AclEntryStatusFormat.toInt(status.getEntries()));
    }
}
