//! `decision`, `soft` and `otherwise`: forms, combinations and types.

use axum::Json;
use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(soft)]
async fn soft_alone() -> u32 {
    1
}

#[rate_limit(decision = quota, soft, otherwise = 1)]
async fn soft_with_otherwise() -> u32 {
    quota.map_or(0, |quota| quota.remaining())
}

#[rate_limit(otherwise = 1, soft, decision = quota)]
async fn otherwise_with_soft() -> u32 {
    quota.map_or(0, |quota| quota.remaining())
}

#[rate_limit(fallible, otherwise = Json(1))]
async fn fallible_with_otherwise() -> Json<u32> {
    Json(1)
}

#[rate_limit(soft, fallible, decision = quota)]
async fn soft_with_fallible() -> Json<u32> {
    Json(quota.is_ok().into())
}

#[rate_limit(decision = user)]
async fn a_parameter((user, _): (u32, u32)) -> Done {
    let _ = user;
    Ok(())
}

#[rate_limit(decision = "quota")]
async fn a_name_in_quotes() -> Done {
    Ok(())
}

#[rate_limit(decision = self.quota)]
async fn a_field() -> Done {
    Ok(())
}

#[rate_limit(decision, soft = true, otherwise)]
async fn without_values() -> Done {
    Ok(())
}

#[rate_limit(decision = quota, decision = other)]
async fn twice() -> Done {
    quota.is_counted();
    Ok(())
}

#[rate_limit(fallback = 1)]
async fn by_another_name() -> u32 {
    1
}

#[rate_limit(otherwise = "text")]
async fn another_type() -> u32 {
    1
}

#[rate_limit(otherwise = ())]
async fn the_unit() -> u32 {
    1
}

#[rate_limit(otherwise = |error| error)]
async fn the_error_itself() -> Json<u32> {
    Json(1)
}

#[rate_limit(otherwise = || 1)]
async fn no_error() -> u32 {
    1
}

#[rate_limit(otherwise = async |_| 1)]
async fn an_async_closure() -> u32 {
    1
}

#[rate_limit(otherwise = |_| -> u32 { 1 })]
async fn a_return_type() -> u32 {
    1
}

#[rate_limit(decision = quota)]
async fn no_refusal_in_the_type() -> u32 {
    quota.remaining()
}

#[rate_limit(decision = quota, soft)]
async fn a_result() -> u32 {
    quota.remaining()
}

#[async_trait::async_trait]
trait Service {
    async fn boxed(&self, pair: (u32, u32)) -> u32;
}

struct Mine;

#[async_trait::async_trait]
impl Service for Mine {
    #[rate_limit(decision = first, otherwise = "text")]
    async fn boxed(&self, (first, _): (u32, u32)) -> u32 {
        first
    }
}

fn main() {}
