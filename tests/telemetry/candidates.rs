//! The answers of a candidate are events and metrics beside those of its limit, and name no caller.

use std::time::Duration;

use harness::{Lines, listen, ran_in_own_process};
use metrics_exporter_prometheus::PrometheusBuilder;
use ratelimit_runtime::{Limiter, Override, Policy};

#[tokio::test]
async fn the_answer_of_a_candidate_is_an_event_beside_that_of_its_limit() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let limiter = Limiter::builder().caller_digest("secret").in_memory();
    let policy = Policy::fixed_window("tried", Duration::from_secs(60), 2);
    limiter.overrides().candidate("tried", Override::new().threshold(1)).unwrap();
    for _ in 0..3 {
        let _ = limiter.check(&policy, "secret-name").await;
    }
    let lines = lines.all();
    let events: Vec<_> = lines.iter().filter(|line| line.contains("candidate decided")).collect();
    let answers = [("admitted", "admitted"), ("admitted", "refused"), ("refused", "refused")];
    assert_eq!(events.len(), answers.len());
    for (event, (outcome, candidate)) in events.into_iter().zip(answers) {
        let fields = format!("outcome=\"{outcome}\" candidate=\"{candidate}\"");
        assert!(event.contains("policy=\"tried\"") && event.contains(&fields), "{event}");
        assert!(event.contains("caller=") && !event.contains("secret-name"), "{event}");
    }
}

#[tokio::test]
async fn calls_of_a_candidate_are_counted_by_both_answers() {
    const TRIED: Policy = Policy::fixed_window("tried", Duration::from_secs(60), 2);
    if ran_in_own_process("candidates::calls_of_a_candidate_are_counted_by_both_answers") {
        return;
    }
    let prometheus = PrometheusBuilder::new().install_recorder().unwrap();
    let limiter = Limiter::in_memory();
    limiter.overrides().candidate("tried", Override::new().threshold(1)).unwrap();
    for _ in 0..5 {
        let _ = limiter.check(&TRIED, "alice").await;
    }
    let page = prometheus.render();
    let count = |outcome: &str, candidate: &str| {
        let labels = format!("policy=\"tried\",outcome=\"{outcome}\",candidate=\"{candidate}\"");
        let series = format!("ratelimit_candidate_total{{{labels}}} ");
        page.lines().find_map(|line| line.strip_prefix(&series))
    };
    assert_eq!(count("admitted", "admitted"), Some("1"));
    assert_eq!(count("admitted", "refused"), Some("1"));
    assert_eq!(count("refused", "refused"), Some("3"));
    assert_eq!(count("refused", "admitted"), None);
}
