#[rate_limit(policy = limits::LOGIN, key = job.user, request_id = job.id, cost = job.pages)]
async fn run(job: Job) -> Result<(), AppError> {
    Ok(())
}
