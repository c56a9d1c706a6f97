package stormwell.clients;

import java.util.List;

/** Two texts beside each other, as `diff` shows them. */
final class Difference {
    /** More lines of one command are not of use to anybody. */
    private static final int LINES_MAX = 60;

    private Difference() {}

    /** Prints the lines of HDFS alone with `-`, of Stormwell alone with `+`, those of both with a blank. */
    static void print(String hdfs, String ours) {
        List<String> left = hdfs.lines().toList();
        List<String> right = ours.lines().toList();
        int[][] common = new int[left.size() + 1][right.size() + 1];
        for (int row = left.size() - 1; row >= 0; row--) {
            for (int column = right.size() - 1; column >= 0; column--) {
                common[row][column] = left.get(row).equals(right.get(column))
                    ? common[row + 1][column + 1] + 1
                    : Math.max(common[row + 1][column], common[row][column + 1]);
            }
        }
        int row = 0;
        int column = 0;
        for (int printed = 0; printed < LINES_MAX && (row < left.size() || column < right.size()); printed++) {
            if (row < left.size() && column < right.size() && left.get(row).equals(right.get(column))) {
                System.out.println("    " + left.get(row++));
                column++;
            } else if (column == right.size() || (row < left.size() && common[row + 1][column] >= common[row][column + 1])) {
                System.out.println("  - " + left.get(row++));
            } else {
                System.out.println("  + " + right.get(column++));
            }
        }
    }
}
