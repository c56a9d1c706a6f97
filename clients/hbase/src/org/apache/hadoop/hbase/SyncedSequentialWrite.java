package org.apache.hadoop.hbase;

import java.io.IOException;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;

/** PerformanceEvaluation's sequentialWrite, whose puts ask for an hsync each. It lies in this package because that one's classes are closed. */
class SyncedSequentialWrite extends PerformanceEvaluation.SequentialWriteTest {
    SyncedSequentialWrite(Connection connection, PerformanceEvaluation.TestOptions options, PerformanceEvaluation.Status status) {
        super(connection, options, status);
    }

    @Override
    boolean testRow(long row, long begin) throws IOException {
        put(table, generateRow(row), opts.valueSize);
        return true;
    }

    /** One row as PerformanceEvaluation writes it by default: one family, one column. */
    static void put(Table table, byte[] row, int length) throws IOException {
        Put put = new Put(row);
        put.addColumn(PerformanceEvaluation.FAMILY_ZERO, PerformanceEvaluation.COLUMN_ZERO, PerformanceEvaluation.generateData(length));
        table.put(put.setDurability(Durability.FSYNC_WAL));
    }
}
