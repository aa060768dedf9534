#!/usr/bin/env bash
# A bulkhead of Failsafe, the Java library, lets so many calls run at a time. A call of `run` or `get` that is refused
# stays in its queue, also if it was not to wait: the next free slot is given to it, and nobody gives it back. So each
# refusal takes a slot for good, and after as many as there are slots the service refuses everyone, though nothing runs.
# One short peak is enough. `runAsync` and `getAsync` leave the queue.
. "$(dirname "$0")/setup"
with_java dev.failsafe/failsafe
cat >Finding.java <<'JAVA'
import dev.failsafe.Bulkhead;
import dev.failsafe.Failsafe;
import dev.failsafe.FailsafeException;
import dev.failsafe.FailsafeExecutor;
import java.time.Duration;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;

class Finding {
    /** The free slots of two, when two calls have ended, and as many as `refused` were refused meanwhile. */
    static int free(int refused, boolean async, int milliseconds) throws InterruptedException {
        Bulkhead<Object> bulkhead = Bulkhead.builder(2).withMaxWaitTime(Duration.ofMillis(milliseconds)).build();
        FailsafeExecutor<Object> limited = Failsafe.with(bulkhead);
        CountDownLatch begun = new CountDownLatch(2), end = new CountDownLatch(1);
        Thread[] running = new Thread[2];
        for (int call = 0; call < 2; call++) {
            running[call] = new Thread(() -> limited.run(() -> {
                begun.countDown();
                end.await();
            }));
            running[call].start();
        }
        begun.await();
        for (int call = 0; call < refused; call++) {
            try {
                if (async)
                    limited.runAsync(() -> {}).join();
                else
                    limited.run(() -> {});
                throw new AssertionError("not refused");
            } catch (FailsafeException | CompletionException full) {
            }
        }
        end.countDown();
        for (Thread call : running)
            call.join();
        int free = 0;
        while (bulkhead.tryAcquirePermit())
            free++;
        String way = async ? "runAsync" : "run";
        System.out.printf("%d of %s refused after %d ms: %d of 2 slots are free%n", refused, way, milliseconds, free);
        return free;
    }

    public static void main(String[] args) throws InterruptedException {
        assert free(0, false, 0) == 2;
        assert free(1, false, 0) == 1;
        assert free(2, false, 0) == 0;
        assert free(2, false, 100) == 0;
        assert free(2, true, 0) == 2;
        assert free(2, true, 100) == 2;
    }
}
JAVA
java -ea Finding.java
