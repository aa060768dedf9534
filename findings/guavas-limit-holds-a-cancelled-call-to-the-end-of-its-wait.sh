#!/usr/bin/env bash
# Who waits in `acquire` of Guava's `RateLimiter` cannot be interrupted, unlike in `acquire` of Java's `Semaphore`. A
# cancelled call sleeps to its turn and is let in: its thread is taken so long, its unit is spent, and the work behind
# the limit runs, though nobody wants it any more. So after `shutdownNow` a pool ends only with the longest wait,
# minutes if a large `acquire` went before. `tryAcquire` with a timeout sleeps in the same way.
. "$(dirname "$0")/setup"
with_java com.google.guava/guava
cat >Finding.java <<'JAVA'
import com.google.common.util.concurrent.RateLimiter;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

class Finding {
    interface Wait {
        boolean admitted() throws InterruptedException;
    }

    record End(double seconds, boolean admitted) {}

    /** When the thread of a call is free that was cancelled after half a second, and whether it was let in. */
    static End cancelled(String name, Wait wait) throws InterruptedException {
        ExecutorService pool = Executors.newSingleThreadExecutor();
        boolean[] admitted = {false};
        long start = System.nanoTime();
        Future<?> call = pool.submit(() -> admitted[0] = wait.admitted());
        Thread.sleep(500);
        call.cancel(true);
        pool.shutdownNow();
        pool.awaitTermination(30, TimeUnit.SECONDS);
        End end = new End((System.nanoTime() - start) / 1e9, admitted[0]);
        String result = end.admitted ? "let in" : "not let in";
        System.out.printf("%s, cancelled after 0.5 s: %s, its thread is free after %.1f s%n", name, result, end.seconds);
        return end;
    }

    public static void main(String[] args) throws InterruptedException {
        RateLimiter limit = RateLimiter.create(1);
        limit.acquire(5);
        End acquire = cancelled("acquire", () -> limit.acquire() > 0);
        double next = limit.acquire(5);
        System.out.printf("the next call waits %.1f s for the one that was cancelled%n", next);
        End tried = cancelled("tryAcquire", () -> limit.tryAcquire(10, TimeUnit.SECONDS));
        End semaphore = cancelled("a semaphore of Java", () -> new Semaphore(0).tryAcquire(5, TimeUnit.SECONDS));
        assert acquire.admitted && acquire.seconds > 4 && next > 0.5;
        assert tried.admitted && tried.seconds > 4;
        assert !semaphore.admitted && semaphore.seconds < 2;
    }
}
JAVA
java -ea Finding.java
