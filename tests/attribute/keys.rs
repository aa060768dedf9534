//! A caller is a part of a key: that of the request, or one that a function composes.

use std::time::Duration;

use ratelimit_runtime::{Caller, Limiter, Policy, RateLimitError, caller, rate_limit};

type Done = Result<(), RateLimitError>;

const LOGIN: Policy = Policy::sliding_window("key_login", Duration::from_secs(900), 2);
const MONTH: Policy = Policy::fixed_window("key_month", Duration::from_secs(900), 2);

#[rate_limit(name = "key_login", period = "15m", threshold = 2, key = (caller::current(), account), limiter = limiter)]
async fn log_in(limiter: &Limiter, account: &str) -> Done {
    Ok(())
}

struct Account {
    id: u64,
}

fn month_key(account: &Account) -> Caller {
    caller!(account.id, "2026-11")
}

#[rate_limit(name = "key_month", algorithm = fixed_window, period = "15m", threshold = 2, key = month_key(account), limiter = limiter)]
async fn call(limiter: &Limiter, account: &Account) -> Done {
    Ok(())
}

async fn left(limiter: &Limiter, policy: &Policy, caller: &Caller) -> u32 {
    limiter.peek(policy, caller).cost(0).await.unwrap().remaining()
}

#[tokio::test]
async fn a_login_is_limited_by_the_address_and_the_claimed_account() {
    let limiter = Limiter::in_memory();
    let log_in =
        |from: Caller, account: &'static str| caller::scope(from, log_in(&limiter, account));
    for _ in 0..2 {
        log_in("1.1.1.1".into(), "alice").await.unwrap();
    }
    log_in("1.1.1.1".into(), "alice").await.unwrap_err();
    // Neither the owner at another address, nor another account, nor a caller of two parts.
    log_in("2.2.2.2".into(), "alice").await.unwrap();
    log_in("1.1.1.1".into(), "bob").await.unwrap();
    log_in(Caller::from("1.1.1.1").and("alice"), "").await.unwrap();
    assert_eq!(left(&limiter, &LOGIN, &caller!("1.1.1.1", "alice")).await, 0);
    // Without an ambient caller: a caller of its own.
    super::keys::log_in(&limiter, "alice").await.unwrap();
    assert_eq!(left(&limiter, &LOGIN, &caller!(None::<Caller>, "alice")).await, 1);
}

#[tokio::test]
async fn a_function_that_composes_a_caller_names_the_key() {
    let limiter = Limiter::in_memory();
    let account = Account { id: 42 };
    call(&limiter, &account).await.unwrap();
    assert_eq!(left(&limiter, &MONTH, &month_key(&account)).await, 1);
    assert_eq!(left(&limiter, &MONTH, &Caller::from(42).and("2026-11")).await, 1);
}
