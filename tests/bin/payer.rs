//! A process of a fleet whose calls a plan pays for, and then credits.
//!
//! `payer URL` prints a line once it has begun, and one for each line of its input:
//!
//! pay CALLS              makes so many calls of one unit, and prints how many the plan and the credits have paid
//! settle CALLS UNITS     settles so many of the last calls that each of both has paid at so many units, if it has as
//!                        many, and prints how many
//! pay                    makes calls without end, and prints a line for each that is paid

use std::{
    collections::BTreeMap,
    env,
    io::{Write, stdin, stdout},
    time::Duration,
};

use ratelimit_runtime::{Decision, Limiter, OnStoreError, Policy, RateLimitError};
use tokio::task::JoinSet;

const HOUR: Duration = Duration::from_secs(3_600);
const PLAN: Policy = Policy::sliding_window("paid-plan", HOUR, 300);
const CREDITS: Policy =
    Policy::fixed_window("paid-credits", Duration::from_secs(366 * 86_400), 200);

/// The calls that each limit has paid, by its name.
type Paid = BTreeMap<&'static str, Vec<Decision>>;

async fn pay(limiter: &Limiter) -> Option<Decision> {
    let checks = [&PLAN, &CREDITS].map(|policy| limiter.check(policy, "alice"));
    match limiter.check_first(checks).await {
        Ok(decision) => Some(decision),
        Err(RateLimitError::Exceeded(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Makes calls at once.
async fn pay_for(calls: usize, limiter: &Limiter, paid: &mut Paid) -> String {
    let mut tasks = JoinSet::new();
    for _ in 0..calls {
        let limiter = limiter.clone();
        tasks.spawn(async move { pay(&limiter).await });
    }
    let new: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let by = |policy: &Policy| new.iter().filter(|it| it.policy() == policy.name()).count();
    let line = format!("{} {}", by(&PLAN), by(&CREDITS));
    for decision in new {
        paid.entry(decision.policy()).or_default().push(decision);
    }
    line
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::args().nth(1).ok_or("usage: payer URL")?;
    let builder = Limiter::builder().deadline(Duration::from_secs(30));
    let limiter = builder.on_store_error(OnStoreError::Deny).connect_lazy(&url)?;
    let (mut paid, mut output) = (Paid::new(), stdout());
    writeln!(output, "ready")?;
    for line in stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["pay", calls] => {
                let line = pay_for(calls.parse()?, &limiter, &mut paid).await;
                writeln!(output, "{line}")?;
            }
            ["settle", calls, units] => {
                let (calls, units): (usize, u32) = (calls.parse()?, units.parse()?);
                let settled = [&PLAN, &CREDITS].map(|policy| {
                    let paid = paid.entry(policy.name()).or_default();
                    let last = paid.split_off(paid.len().saturating_sub(calls));
                    for decision in &last {
                        decision.settle(units);
                    }
                    last.len()
                });
                limiter.flush().await?;
                writeln!(output, "{} {}", settled[0], settled[1])?;
            }
            _ => loop {
                if pay(&limiter).await.is_some() {
                    writeln!(output, "paid")?;
                }
            },
        }
    }
    Ok(())
}
