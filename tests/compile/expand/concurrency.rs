#[rate_limit(concurrency = 5, concurrency_timeout = "10s", key = user.id, skip = user.is_admin())]
async fn upload(user: User) -> Result<(), AppError> {
    store(user).await
}

#[rate_limit(name = "by-user", period = 60, threshold = plan.calls, concurrency = plan.at_once)]
#[rate_limit(policy = TENANT, decision = quota)]
async fn beside_windows(plan: Plan) -> Result<u32, AppError> {
    Ok(quota.remaining())
}
