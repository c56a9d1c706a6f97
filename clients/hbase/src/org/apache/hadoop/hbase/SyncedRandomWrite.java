package org.apache.hadoop.hbase;

import java.io.IOException;
import org.apache.hadoop.hbase.client.Connection;

/** PerformanceEvaluation's randomWrite, whose puts ask for an hsync each. */
class SyncedRandomWrite extends PerformanceEvaluation.RandomWriteTest {
    SyncedRandomWrite(Connection connection, PerformanceEvaluation.TestOptions options, PerformanceEvaluation.Status status) {
        super(connection, options, status);
    }

    @Override
    boolean testRow(long row, long begin) throws IOException {
        SyncedSequentialWrite.put(table, generateRow(row), opts.valueSize);
        return true;
    }
}
