pub async fn report<T: Display>(
    tenant: T,
    user: &User,
    plan: Plan,
    pages: u32,
    limiter: &Limiter,
) -> Result<impl Display, AppError> {
    if ::ratelimit_runtime::__private::runs_check(user.is_admin) {
        fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
            static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                __ratelimit,
                ::ratelimit_runtime::Policy::sliding_window(
                        "reports",
                        ::ratelimit_runtime::__private::micros(0),
                        0,
                    )
                    .tier(::ratelimit_runtime::__private::micros(86400000000), 1000),
                ::ratelimit_runtime::__private::Declaration {
                    file: ::ratelimit_runtime::__private::file!(),
                    line: ::ratelimit_runtime::__private::line!(),
                    column: ::ratelimit_runtime::__private::column!(),
                    module: ::ratelimit_runtime::__private::module_path!(),
                    dynamic: &["plan . period", "plan . threshold"],
                    cost: "pages",
                    key: &["tenant", "user . id"],
                    dry_run: true,
                    others: &[
                        ("max_wait", "2s"),
                        ("skip", "user . is_admin"),
                        ("on_store_error", "deny"),
                    ],
                },
            );
            ::ratelimit_runtime::__private::submit!(& CALLSITE);
            &CALLSITE
        }
        let __ratelimit = {
            let mut __ratelimit = (
                ::ratelimit_runtime::__private::CallBuilder::new(__ratelimit()),
                ::ratelimit_runtime::Policy::sliding_window(
                        "reports",
                        plan.period,
                        ::ratelimit_runtime::__private::Units::units(
                            ::ratelimit_runtime::__private::number(plan.threshold).pick(),
                        ),
                    )
                    .tier(::ratelimit_runtime::__private::micros(86400000000), 1000),
            );
            __ratelimit.0.options.unvalidated();
            __ratelimit
                .0
                .options
                .cost(
                    ::ratelimit_runtime::__private::Units::units(
                        ::ratelimit_runtime::__private::number(pages).pick(),
                    ),
                );
            __ratelimit
                .0
                .options
                .max_wait(::ratelimit_runtime::__private::micros(2000000));
            __ratelimit
                .0
                .options
                .on_store_error(::ratelimit_runtime::OnStoreError::Deny);
            ::ratelimit_runtime::__private::KeyPart::push_to(
                ::ratelimit_runtime::__private::part(&(tenant)).pick(),
                &mut __ratelimit.0.caller,
            );
            ::ratelimit_runtime::__private::KeyPart::push_to(
                ::ratelimit_runtime::__private::part(&(user.id)).pick(),
                &mut __ratelimit.0.caller,
            );
            __ratelimit.0.admit_under(&*&(limiter), &__ratelimit.1)
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
    { Ok(tenant) }
}
