//! The gauges of a limit are those of its function, whoever else checks it.

use std::time::Duration;

use harness::ran_in_own_process;
use metrics_exporter_prometheus::PrometheusBuilder;
use ratelimit_runtime::{Limiter, Policy, RateLimitError, rate_limit};

const TRIED: Policy = Policy::sliding_window("tried", Duration::from_secs(60), 1);

#[rate_limit(policy = TRIED, key = 1, limiter = limiter, dry_run)]
#[expect(dead_code, reason = "to be in the program is enough")]
async fn tried(limiter: &Limiter) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn a_check_by_hand_does_not_hide_the_dry_run_of_a_function() {
    if ran_in_own_process("gauges::a_check_by_hand_does_not_hide_the_dry_run_of_a_function") {
        return;
    }
    let prometheus = PrometheusBuilder::new().install_recorder().unwrap();
    let limiter = Limiter::in_memory();
    // As a page of usage does.
    limiter.peek(&TRIED, 1).await.unwrap();
    limiter.record_limits();
    let page = prometheus.render();
    assert!(page.contains("ratelimit_enforcement{policy=\"tried\"} 1\n"), "{page}");
}
