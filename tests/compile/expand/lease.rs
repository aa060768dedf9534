#[rate_limit(period = "1s", threshold = 1_000_000, lease = "20ms")]
async fn search(query: Query) -> Result<Page, AppError> {
    find(query).await
}

#[rate_limit(algorithm = token_bucket, period = plan.period, threshold = 50_000, lease = plan.period / 50)]
async fn by_plan(plan: Plan) -> Result<(), AppError> {
    Ok(())
}
