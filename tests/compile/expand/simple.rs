#[rate_limit(period = 30, threshold = 2, key = name)]
async fn say_hi(name: String) -> Result<String, AppError> {
    Ok(format!("hi, {name}"))
}
