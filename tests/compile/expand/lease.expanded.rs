async fn search(query: Query) -> Result<Page, AppError> {
    {
        fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
            static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                __ratelimit,
                ::ratelimit_runtime::Policy::sliding_window(
                        "",
                        ::ratelimit_runtime::__private::micros(1000000),
                        1000000,
                    )
                    .lease(::ratelimit_runtime::__private::micros(20000)),
                ::ratelimit_runtime::__private::Declaration {
                    file: ::ratelimit_runtime::__private::file!(),
                    line: ::ratelimit_runtime::__private::line!(),
                    column: ::ratelimit_runtime::__private::column!(),
                    module: ::ratelimit_runtime::__private::module_path!(),
                    dynamic: &[],
                    cost: "1",
                    key: &[],
                    dry_run: false,
                    others: &[],
                },
            );
            ::ratelimit_runtime::__private::submit!(& CALLSITE);
            &CALLSITE
        }
        let __ratelimit = {
            let mut __ratelimit = ::ratelimit_runtime::__private::CallBuilder::new(
                __ratelimit(),
            );
            __ratelimit.admit(::ratelimit_runtime::__private::limiter())
        };
        match __ratelimit {
            ::ratelimit_runtime::__private::Started::Ready(
                ::ratelimit_runtime::__private::Ok(__ratelimit),
            ) => __ratelimit,
            ::ratelimit_runtime::__private::Started::Ready(
                ::ratelimit_runtime::__private::Err(__ratelimit),
            ) => return ::ratelimit_runtime::FromRejection::from_rejection(__ratelimit),
            ::ratelimit_runtime::__private::Started::Pending(__ratelimit) => {
                if let ::ratelimit_runtime::__private::Err(__ratelimit) = __ratelimit
                    .await
                {
                    return ::ratelimit_runtime::FromRejection::from_rejection(
                        __ratelimit,
                    );
                }
            }
        }
    }
    { find(query).await }
}
async fn by_plan(plan: Plan) -> Result<(), AppError> {
    {
        fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
            static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                __ratelimit,
                ::ratelimit_runtime::Policy::token_bucket(
                        "",
                        ::ratelimit_runtime::__private::micros(0),
                        50000,
                    )
                    .lease(::ratelimit_runtime::__private::micros(0)),
                ::ratelimit_runtime::__private::Declaration {
                    file: ::ratelimit_runtime::__private::file!(),
                    line: ::ratelimit_runtime::__private::line!(),
                    column: ::ratelimit_runtime::__private::column!(),
                    module: ::ratelimit_runtime::__private::module_path!(),
                    dynamic: &["plan . period", "plan . period / 50"],
                    cost: "1",
                    key: &[],
                    dry_run: false,
                    others: &[],
                },
            );
            ::ratelimit_runtime::__private::submit!(& CALLSITE);
            &CALLSITE
        }
        let __ratelimit = {
            let mut __ratelimit = (
                ::ratelimit_runtime::__private::CallBuilder::new(__ratelimit()),
                ::ratelimit_runtime::Policy::token_bucket("", plan.period, 50000)
                    .lease(plan.period / 50),
            );
            __ratelimit.0.options.unvalidated();
            __ratelimit
                .0
                .admit_under(::ratelimit_runtime::__private::limiter(), &__ratelimit.1)
        };
        match __ratelimit {
            ::ratelimit_runtime::__private::Started::Ready(
                ::ratelimit_runtime::__private::Ok(__ratelimit),
            ) => __ratelimit,
            ::ratelimit_runtime::__private::Started::Ready(
                ::ratelimit_runtime::__private::Err(__ratelimit),
            ) => return ::ratelimit_runtime::FromRejection::from_rejection(__ratelimit),
            ::ratelimit_runtime::__private::Started::Pending(__ratelimit) => {
                if let ::ratelimit_runtime::__private::Err(__ratelimit) = __ratelimit
                    .await
                {
                    return ::ratelimit_runtime::FromRejection::from_rejection(
                        __ratelimit,
                    );
                }
            }
        }
    }
    { Ok(()) }
}
