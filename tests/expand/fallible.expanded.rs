async fn list(
    State(todos): State<Todos>,
) -> ::ratelimit_runtime::private::Result<
    (StatusCode, impl IntoResponse),
    ::ratelimit_runtime::RateLimitError,
> {
    {
        fn __ratelimit() -> &'static ::ratelimit_runtime::private::Site {
            static SITE: ::ratelimit_runtime::private::Site = ::ratelimit_runtime::private::Site::new(
                __ratelimit,
                ::ratelimit_runtime::Policy::sliding_window(
                    "",
                    ::ratelimit_runtime::private::micros(30000000),
                    2,
                ),
                ::ratelimit_runtime::private::Declaration {
                    file: ::ratelimit_runtime::private::file!(),
                    line: ::ratelimit_runtime::private::line!(),
                    column: ::ratelimit_runtime::private::column!(),
                    module: ::ratelimit_runtime::private::module_path!(),
                    late: &[],
                    cost: "1",
                    key: &[],
                    dry_run: false,
                },
            );
            ::ratelimit_runtime::private::submit!(& SITE);
            &SITE
        }
        let __ratelimit = {
            let mut __ratelimit = ::ratelimit_runtime::private::Call::new(__ratelimit());
            __ratelimit.check()
        };
        if let ::ratelimit_runtime::private::Err(__ratelimit) = match __ratelimit {
            ::ratelimit_runtime::private::Checked::Decided(__ratelimit) => __ratelimit,
            ::ratelimit_runtime::private::Checked::Undecided(__ratelimit) => {
                __ratelimit.await
            }
        } {
            return ::ratelimit_runtime::private::Err(__ratelimit);
        }
    }
    ::ratelimit_runtime::private::Ok(
        async move {
            if false {
                return ::ratelimit_runtime::private::Output::<(StatusCode, _)>::NEVER
                    .not_yet_fallible();
            }
            { (StatusCode::OK, Json(todos.all())) }
        }
            .await,
    )
}
