#[rate_limit(
    tier(period = plan.period, threshold = plan.threshold),
    tier(period = "1d", threshold = 1000),
    key = (tenant, user.id),
    name = "reports",
    cost = pages,
    skip = user.is_admin,
    limiter = limiter,
    max_wait = "2s",
    on_store_error = deny,
    dry_run
)]
pub async fn report<T: Display>(
    tenant: T,
    user: &User,
    plan: Plan,
    pages: u32,
    limiter: &Limiter,
) -> Result<impl Display, AppError> {
    Ok(tenant)
}
