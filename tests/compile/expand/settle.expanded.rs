async fn report(user: &str) -> Vec<Row> {
    let __ratelimitheld = {
        fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
            static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                __ratelimit,
                ::ratelimit_runtime::Policy::sliding_window(
                    "",
                    ::ratelimit_runtime::__private::micros(60000000),
                    1000,
                ),
                ::ratelimit_runtime::__private::Declaration {
                    file: ::ratelimit_runtime::__private::file!(),
                    line: ::ratelimit_runtime::__private::line!(),
                    column: ::ratelimit_runtime::__private::column!(),
                    module: ::ratelimit_runtime::__private::module_path!(),
                    dynamic: &[],
                    cost: "10",
                    key: &["user"],
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
            __ratelimit.options.cost(10);
            ::ratelimit_runtime::__private::KeyPart::push_to(
                ::ratelimit_runtime::__private::part(&(user)).pick(),
                &mut __ratelimit.caller,
            );
            __ratelimit.decide(::ratelimit_runtime::__private::limiter())
        };
        let __ratelimit = match __ratelimit {
            ::ratelimit_runtime::__private::Started::Ready(__ratelimit) => __ratelimit,
            ::ratelimit_runtime::__private::Started::Pending(__ratelimit) => {
                __ratelimit.await
            }
        };
        match __ratelimit {
            ::ratelimit_runtime::__private::Ok(__ratelimit) => __ratelimit,
            ::ratelimit_runtime::__private::Err(__ratelimit) => {
                return ::ratelimit_runtime::__private::RefusalAsForeign::from_rejection(
                    __ratelimit,
                );
            }
        }
    };
    let __ratelimitcharge___ratelimitheld = ::ratelimit_runtime::__private::Charge::of(
        __ratelimitheld,
    );
    ::ratelimit_runtime::__private::Charge::settle(
        &__ratelimitcharge___ratelimitheld,
        async move {
            if false {
                return ::ratelimit_runtime::__private::never::<Vec<Row>>();
            }
            { rows_of(user).await }
        }
            .await,
        |rows| ::ratelimit_runtime::__private::Units::units(
            ::ratelimit_runtime::__private::number(rows.len()).pick(),
        ),
    )
}
