package stormwell.clients;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsShell;
import org.apache.hadoop.hdfs.tools.DFSAdmin;
import org.apache.hadoop.hdfs.tools.ECAdmin;
import org.apache.hadoop.hdfs.tools.GetGroups;
import org.apache.hadoop.hdfs.tools.StoragePolicyAdmin;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/** Runs a line as `hdfs` would, in this process: what it prints, and its exit code. */
final class Shell {
    /** What a command printed and how it ended. */
    record Result(String output, String errors, int code) {}

    private Shell() {}

    static Result run(Side side, Line line) throws Exception {
        List<String> words = new ArrayList<>();
        String myself = UserGroupInformation.getCurrentUser().getShortUserName();
        for (String word : line.words()) {
            words.add(word.replace("$LOCAL", side.local.toString()).replace("$USER", myself));
        }
        UserGroupInformation user = line.user() == null
            ? UserGroupInformation.getCurrentUser()
            : UserGroupInformation.createRemoteUser(line.user());
        try {
            return user.doAs((PrivilegedExceptionAction<Result>) () -> captured(side, words, line.input()));
        } finally {
            // Every command of `hdfs` is a process of its own: the next one makes its file system anew, with its own -D.
            FileSystem.closeAllForUGI(user);
        }
    }

    private static Result captured(Side side, List<String> words, String input) throws Exception {
        PrintStream output = System.out;
        PrintStream errors = System.err;
        InputStream keyboard = System.in;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        int code;
        try {
            code = ToolRunner.run(tool(words.get(1), new Configuration(side.configuration)), arguments(words));
        } catch (Exception failure) {
            code = 255;
            System.err.println("thrown: " + failure);
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(output);
            System.setErr(errors);
            System.setIn(keyboard);
        }
        return new Result(printed.toString(StandardCharsets.UTF_8), complained.toString(StandardCharsets.UTF_8), code);
    }

    private static String[] arguments(List<String> words) {
        return words.subList(2, words.size()).toArray(new String[0]);
    }

    private static Tool tool(String name, Configuration configuration) {
        switch (name) {
            case "dfs": return new FsShell(configuration);
            case "dfsadmin": return new DFSAdmin(configuration);
            case "storagepolicies": return new StoragePolicyAdmin(configuration);
            case "ec": return new ECAdmin(configuration);
            case "groups": return new GetGroups(configuration);
            default: throw new IllegalArgumentException("`hdfs " + name + "` is not known to this driver");
        }
    }
}
