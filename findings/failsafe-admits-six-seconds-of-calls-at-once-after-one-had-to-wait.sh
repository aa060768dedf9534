#!/usr/bin/env bash
# A bursty limit of Failsafe, the Java library, is so many calls in a period, and a quiet period adds nothing to the
# next one. But if the last call before the quiet time had to wait for its turn, each quiet period adds its calls,
# without a bound: ten a second are 59 at once after six seconds, and 36,000 after an hour. So the first calls after a
# quiet night are not limited, if the last one of the evening waited.
. "$(dirname "$0")/setup"
with_java dev.failsafe/failsafe
cat >Finding.java <<'JAVA'
import dev.failsafe.RateLimiter;
import java.time.Duration;

class Finding {
    /** How many pass at once of 1,000. */
    static int passed(RateLimiter<Object> limiter) {
        int passed = 0;
        for (int call = 0; call < 1000; call++)
            if (limiter.tryAcquirePermit())
                passed++;
        return passed;
    }

    public static void main(String[] args) throws InterruptedException {
        for (boolean waits : new boolean[] {false, true}) {
            RateLimiter<Object> limiter = RateLimiter.burstyBuilder(10, Duration.ofSeconds(1)).build();
            int first = passed(limiter);
            if (waits)
                limiter.acquirePermit();
            Thread.sleep(waits ? 5000 : 6000);
            int later = passed(limiter);
            String last = waits ? "one that waits" : "none";
            System.out.printf("ten a second: %d, then %s, after six seconds %d%n", first, last, later);
            assert first == 10 && (waits ? later > 50 : later == 10);
        }
    }
}
JAVA
java -ea Finding.java
