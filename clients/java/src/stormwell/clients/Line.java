package stormwell.clients;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * One line of commands.txt: `[~] [NAME$] hdfs TOOL WORD… [<<< TEXT]`. `~`: sizes of the store are in the output, so numbers
 * are not compared. NAME$: run as this user. Words may be quoted with ' or ".
 */
record Line(int number, String text, boolean sizes, String user, List<String> words, String input) {
    private static final Pattern WORD = Pattern.compile("'([^']*)'|\"([^\"]*)\"|(\\S+)");

    static Line of(int number, String text) {
        String rest = text;
        boolean sizes = rest.startsWith("~ ");
        if (sizes) {
            rest = rest.substring(2);
        }
        String user = null;
        int end = rest.indexOf("$ hdfs ");
        if (end > 0 && !rest.startsWith("hdfs")) {
            user = rest.substring(0, end);
            rest = rest.substring(end + 2);
        }
        String input = "";
        int from = rest.indexOf(" <<< ");
        if (from > 0) {
            input = words(rest.substring(from + 5)).get(0) + "\n";
            rest = rest.substring(0, from);
        }
        List<String> words = words(rest);
        if (words.size() < 2 || !words.get(0).equals("hdfs")) {
            throw new IllegalArgumentException("line " + number + " is no command: " + text);
        }
        return new Line(number, text, sizes, user, words, input);
    }

    private static List<String> words(String text) {
        List<String> words = new ArrayList<>();
        Matcher matcher = WORD.matcher(text);
        while (matcher.find()) {
            words.add(matcher.group(1) != null ? matcher.group(1) : matcher.group(2) != null ? matcher.group(2) : matcher.group(3));
        }
        return words;
    }
}
