//! Code that runs before a future boxed by hand cannot be limited with it, nor can the future of another function.

use std::pin::Pin;

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

fn pay() -> u32 {
    1
}

#[rate_limit(period = 30, threshold = 2)]
fn paid_before(user: u32) -> Pin<Box<dyn Future<Output = Done> + Send>> {
    let user = user;
    let paid = pay();
    Box::pin(async move {
        let _ = (user, paid);
        Ok(())
    })
}

#[rate_limit(period = 30, threshold = 2)]
fn a_clone_of_what_is_paid() -> Pin<Box<dyn Future<Output = Done> + Send>> {
    let paid = pay().clone();
    Box::pin(async move {
        let _ = paid;
        Ok(())
    })
}

#[rate_limit(period = 30, threshold = 2)]
fn another_method(user: u32) -> Pin<Box<dyn Future<Output = Done> + Send>> {
    let zeros = user.leading_zeros();
    Box::pin(async move {
        let _ = zeros;
        Ok(())
    })
}

#[rate_limit(period = 30, threshold = 2)]
fn a_way_out(user: Option<u32>) -> Pin<Box<dyn Future<Output = Done> + Send>> {
    let Some(user) = user else {
        return Box::pin(async { Ok(()) });
    };
    Box::pin(async move {
        let _ = user;
        Ok(())
    })
}

async fn answer() -> Done {
    Ok(())
}

#[rate_limit(period = 30, threshold = 2)]
fn of_a_function() -> Pin<Box<dyn Future<Output = Done> + Send>> {
    Box::pin(answer())
}

fn main() {
    let _ = paid_before(1);
    let _ = a_clone_of_what_is_paid();
    let _ = another_method(1);
    let _ = a_way_out(None);
    let _ = of_a_function();
}
