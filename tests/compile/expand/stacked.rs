#[rate_limit(name = "by-user", threshold = 5, key = user.id, decision = quota)]
#[tracing::instrument]
#[ratelimit_runtime::rate_limit(policy = TENANT, key = user.tenant, skip = user.is_admin(), otherwise = |error| Page::busy(error))]
async fn two(user: User) -> Result<Page, AppError> {
    Ok(quota.remaining().into())
}
