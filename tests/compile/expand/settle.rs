#[rate_limit(period = 60, threshold = 1_000, cost = 10, key = user, settle = |rows| rows.len())]
async fn report(user: &str) -> Vec<Row> {
    rows_of(user).await
}
