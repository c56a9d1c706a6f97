package stormwell.hbase;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;

/** Ends when HBase takes tables. Whoever starts it bounds how long that may take. */
public final class Ready {
    private Ready() {}

    public static void main(String[] words) throws InterruptedException {
        Configuration configuration = HBaseConfiguration.create();
        configuration.setInt("hbase.client.retries.number", 1);
        while (!serves(configuration)) {
            Thread.sleep(200);
        }
    }

    private static boolean serves(Configuration configuration) {
        try (Connection connection = ConnectionFactory.createConnection(configuration); Admin admin = connection.getAdmin()) {
            // A master that is not initialized lists no namespaces.
            admin.listNamespaces();
            return !admin.getRegionServers().isEmpty();
        } catch (IOException starting) {
            return false;
        }
    }
}
