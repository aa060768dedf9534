async fn say_hi(name: String) -> Result<String, AppError> {
    {
        fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
            static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                __ratelimit,
                ::ratelimit_runtime::Policy::sliding_window(
                    "",
                    ::ratelimit_runtime::__private::micros(30000000),
                    2,
                ),
                ::ratelimit_runtime::__private::Declaration {
                    file: ::ratelimit_runtime::__private::file!(),
                    line: ::ratelimit_runtime::__private::line!(),
                    column: ::ratelimit_runtime::__private::column!(),
                    module: ::ratelimit_runtime::__private::module_path!(),
                    dynamic: &[],
                    cost: "1",
                    key: &["name"],
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
            ::ratelimit_runtime::__private::KeyPart::push_to(
                ::ratelimit_runtime::__private::part(&(name)).pick(),
                &mut __ratelimit.caller,
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
    { Ok(format!("hi, {name}")) }
}
