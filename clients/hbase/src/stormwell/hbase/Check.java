package stormwell.hbase;

import java.io.IOException;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;

/**
 * Reads a table to its end, and drops it. Words: its name, how many bytes each row must have in its one cell, how many rows there are at
 * least and at most.
 */
public final class Check {
    private Check() {}

    public static void main(String[] words) throws IOException {
        TableName name = TableName.valueOf(words[0]);
        long least = Long.parseLong(words[2]);
        long most = Long.parseLong(words[3]);
        try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create()); Admin admin = connection.getAdmin()) {
            // What is read must come from the store, not from the memory of the server that took it.
            admin.flush(name);
            long rows = count(connection, name, Integer.parseInt(words[1]));
            if (rows < least || rows > most) {
                throw new IOException(name + " has " + rows + " rows, not " + least + " to " + most);
            }
            admin.disableTable(name);
            admin.deleteTable(name);
        }
    }

    private static long count(Connection connection, TableName name, int bytes) throws IOException {
        long rows = 0;
        try (Table table = connection.getTable(name); ResultScanner scanner = table.getScanner(new Scan().setCacheBlocks(false))) {
            for (Result row : scanner) {
                if (row.size() != 1 || row.rawCells()[0].getValueLength() != bytes) {
                    throw new IOException("a row of " + name + " is not one cell of " + bytes + " bytes: " + row);
                }
                rows++;
            }
        }
        return rows;
    }
}
