#[rate_limit(period = 30, threshold = 2, fallible)]
async fn list(State(todos): State<Todos>) -> (StatusCode, impl IntoResponse) {
    (StatusCode::OK, Json(todos.all()))
}
