//! Limits of one function that would count under one name.

use std::time::Duration;

use ratelimit_runtime::{Policy, RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(period = "1m", threshold = 1, key = user)]
#[rate_limit(period = "1h", threshold = 5, key = user)]
async fn without_names(user: &str) -> Done {
    let _ = user;
    Ok(())
}

/// The compiler resolves the name of an attribute below by its path.
#[rate_limit(name = "mail", key = user)]
#[doc = "is between them"]
#[ratelimit_runtime::rate_limit(key = tenant)]
async fn one_name(user: &str, tenant: &str) -> Done {
    let _ = (user, tenant);
    Ok(())
}

#[rate_limit(key = user)]
#[rate_limit(name = "tenant", key = tenant)]
async fn the_other_name(user: &str, tenant: &str) -> Done {
    let _ = (user, tenant);
    Ok(())
}

#[rate_limit(name = "mail", key = user)]
#[rate_limit(name = r"mail", key = tenant)]
async fn the_same_name(user: &str, tenant: &str) -> Done {
    let _ = (user, tenant);
    Ok(())
}

#[rate_limit(name = "first")]
#[rate_limit(name = "second")]
#[rate_limit(name = "first")]
async fn two_of_three() -> Done {
    Ok(())
}

#[rate_limit(name = "first")]
#[cfg_attr(not(any()), allow(unused), rate_limit(threshold = 5))]
async fn configured() -> Done {
    Ok(())
}

#[rate_limit]
#[cfg_attr(all(), cfg_attr(not(any()), rate_limit(name = "second")))]
async fn configured_twice() -> Done {
    Ok(())
}

/// Whatever it is called here.
mod renamed {
    use ratelimit_runtime::{RateLimitError, rate_limit as limit};

    #[limit(threshold = 1)]
    #[limit(threshold = 5)]
    pub(super) async fn by_import() -> Result<(), RateLimitError> {
        Ok(())
    }

    #[ratelimit_runtime::rate_limit(name = "mail", threshold = 1)]
    #[doc = "is between them"]
    #[limit(threshold = 5)]
    pub(super) async fn by_path() -> Result<(), RateLimitError> {
        Ok(())
    }
}

#[rate_limit(name = "first", decision = quota, max_wait = 1)]
#[rate_limit(name = "second", decision = quota, max_wait = "2s", fallible)]
async fn two_decisions_and_waits() -> Done {
    quota.is_counted();
    Ok(())
}

const LOGIN: Policy = Policy::sliding_window("login", Duration::from_secs(60), 5);
static SAME_NAME: Policy = Policy::sliding_window("login", Duration::from_secs(60), 5);

#[rate_limit(policy = LOGIN)]
#[rate_limit(policy = LOGIN)]
async fn one_policy() -> Done {
    Ok(())
}

#[rate_limit(policy = LOGIN)]
#[rate_limit(policy = SAME_NAME)]
#[rate_limit(name = "other", otherwise = 5)]
async fn policies_of_one_name() -> Done {
    Ok(())
}

#[rate_limit(name = "login")]
#[rate_limit(policy = LOGIN)]
async fn a_name_and_a_policy() -> Done {
    Ok(())
}

#[rate_limit(name = "first", threshold = 0)]
#[rate_limit(name = "second", threshold = 0, colour = 5)]
#[rate_limit = "third"]
async fn mistakes_in_each() -> Done {
    Ok(())
}

struct Service;

impl Service {
    #[rate_limit]
    #[cfg_attr(not(any()), rate_limit)]
    async fn method(&self) -> Done {
        Ok(())
    }
}

fn main() {
    #[rate_limit]
    #[cfg_attr(not(any()), rate_limit)]
    async fn nested() -> Done {
        Ok(())
    }

    let _ = (without_names("a"), one_name("a", "b"), the_other_name("a", "b"), nested());
    let _ = (the_same_name("a", "b"), two_of_three(), configured(), configured_twice());
    let _ = (Service.method(), renamed::by_import(), renamed::by_path());
}
