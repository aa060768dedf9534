async fn run(job: Job) -> Result<(), AppError> {
    let __ratelimitheld = {
        fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
            const _: () = ::ratelimit_runtime::__private::takes_dynamic_costs(
                &limits::LOGIN,
            );
            const _: () = ::ratelimit_runtime::__private::takes_request_ids(
                &limits::LOGIN,
            );
            static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                __ratelimit,
                ::ratelimit_runtime::__private::shared_policy(
                    ::ratelimit_runtime::__private::one_policy(&limits::LOGIN),
                ),
                ::ratelimit_runtime::__private::Declaration {
                    file: ::ratelimit_runtime::__private::file!(),
                    line: ::ratelimit_runtime::__private::line!(),
                    column: ::ratelimit_runtime::__private::column!(),
                    module: ::ratelimit_runtime::__private::module_path!(),
                    dynamic: &[],
                    cost: "job . pages",
                    key: &["job . user"],
                    dry_run: false,
                    others: &[("request_id", "job . id")],
                },
            );
            ::ratelimit_runtime::__private::submit!(& CALLSITE);
            &CALLSITE
        }
        let __ratelimit = {
            let mut __ratelimit = ::ratelimit_runtime::__private::CallBuilder::new(
                __ratelimit(),
            );
            __ratelimit.options.unvalidated();
            __ratelimit
                .options
                .cost(
                    ::ratelimit_runtime::__private::Units::units(
                        ::ratelimit_runtime::__private::number(job.pages).pick(),
                    ),
                );
            __ratelimit
                .options
                .request_id(
                    ::ratelimit_runtime::__private::RequestId::hash(
                        ::ratelimit_runtime::__private::part(&(job.id)).id(),
                    ),
                );
            ::ratelimit_runtime::__private::KeyPart::push_to(
                ::ratelimit_runtime::__private::part(&(job.user)).pick(),
                &mut __ratelimit.caller,
            );
            __ratelimit.hold(::ratelimit_runtime::__private::limiter())
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
                return ::ratelimit_runtime::FromRejection::from_rejection(__ratelimit);
            }
        }
    };
    { Ok(()) }
}
