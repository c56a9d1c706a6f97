package stormwell.clients;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** The same work on several threads at once, timed. */
final class Threads {
    /** What the thread of this number does. */
    interface Work {
        void run(int thread) throws Exception;
    }

    private Threads() {}

    /** Seconds until all have ended; the first one's exception if one has failed. */
    static double run(int count, Work work) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(count);
        long begin = System.nanoTime();
        List<Future<Void>> running = new ArrayList<>();
        for (int thread = 0; thread < count; thread++) {
            int number = thread;
            running.add(threads.submit((Callable<Void>) () -> {
                work.run(number);
                return null;
            }));
        }
        for (Future<Void> one : running) {
            one.get();
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        threads.shutdown();
        return seconds;
    }
}
