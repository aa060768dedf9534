async fn upload(user: User) -> Result<(), AppError> {
    let __ratelimitheld = {
        fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
            static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                __ratelimit,
                ::ratelimit_runtime::Policy::concurrency_limit("", 5)
                    .concurrency_timeout(
                        ::ratelimit_runtime::__private::micros(10000000),
                    ),
                ::ratelimit_runtime::__private::Declaration {
                    file: ::ratelimit_runtime::__private::file!(),
                    line: ::ratelimit_runtime::__private::line!(),
                    column: ::ratelimit_runtime::__private::column!(),
                    module: ::ratelimit_runtime::__private::module_path!(),
                    dynamic: &[],
                    cost: "1",
                    key: &["user . id"],
                    dry_run: false,
                    others: &[("skip", "user . is_admin ()")],
                },
            );
            ::ratelimit_runtime::__private::submit!(& CALLSITE);
            &CALLSITE
        }
        if ::ratelimit_runtime::__private::runs_check(user.is_admin()) {
            let __ratelimit = {
                let mut __ratelimit = ::ratelimit_runtime::__private::CallBuilder::new(
                    __ratelimit(),
                );
                ::ratelimit_runtime::__private::KeyPart::push_to(
                    ::ratelimit_runtime::__private::part(&(user.id)).pick(),
                    &mut __ratelimit.caller,
                );
                __ratelimit.hold(::ratelimit_runtime::__private::limiter())
            };
            let __ratelimit = match __ratelimit {
                ::ratelimit_runtime::__private::Started::Ready(__ratelimit) => {
                    __ratelimit
                }
                ::ratelimit_runtime::__private::Started::Pending(__ratelimit) => {
                    __ratelimit.await
                }
            };
            match __ratelimit {
                ::ratelimit_runtime::__private::Ok(__ratelimit) => __ratelimit,
                ::ratelimit_runtime::__private::Err(__ratelimit) => {
                    return ::ratelimit_runtime::FromRejection::from_rejection(
                        __ratelimit,
                    );
                }
            }
        } else {
            ::ratelimit_runtime::__private::PermitGuard::UNCHECKED
        }
    };
    { store(user).await }
}
async fn beside_windows(plan: Plan) -> Result<u32, AppError> {
    let (__ratelimitheld_0, quota) = {
        const _: () = ::ratelimit_runtime::__private::names_apart(
            "by-user",
            TENANT.name(),
        );
        fn __ratelimit() {}
        let __ratelimit = ::ratelimit_runtime::__private::decide_all([
            {
                fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
                    static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                        __ratelimit,
                        ::ratelimit_runtime::Policy::sliding_window(
                                "by-user",
                                ::ratelimit_runtime::__private::micros(60000000),
                                0,
                            )
                            .concurrency(0),
                        ::ratelimit_runtime::__private::Declaration {
                            file: ::ratelimit_runtime::__private::file!(),
                            line: ::ratelimit_runtime::__private::line!(),
                            column: ::ratelimit_runtime::__private::column!(),
                            module: ::ratelimit_runtime::__private::module_path!(),
                            dynamic: &["plan . calls", "plan . at_once"],
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
                        ::ratelimit_runtime::Policy::sliding_window(
                                "by-user",
                                ::ratelimit_runtime::__private::micros(60000000),
                                ::ratelimit_runtime::__private::Units::units(
                                    ::ratelimit_runtime::__private::number(plan.calls).pick(),
                                ),
                            )
                            .concurrency(
                                ::ratelimit_runtime::__private::Units::units(
                                    ::ratelimit_runtime::__private::number(plan.at_once).pick(),
                                ),
                            ),
                    );
                    __ratelimit.0.options.unvalidated();
                    __ratelimit
                        .0
                        .join_under(
                            ::ratelimit_runtime::__private::limiter(),
                            &__ratelimit.1,
                        )
                };
                __ratelimit
            },
            {
                fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
                    static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                        __ratelimit,
                        ::ratelimit_runtime::__private::shared_policy(
                            ::ratelimit_runtime::__private::one_policy(&TENANT),
                        ),
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
                    __ratelimit.options.unvalidated();
                    __ratelimit.join(::ratelimit_runtime::__private::limiter())
                };
                __ratelimit
            },
        ]);
        let __ratelimit = match __ratelimit {
            ::ratelimit_runtime::__private::Started::Ready(__ratelimit) => __ratelimit,
            ::ratelimit_runtime::__private::Started::Pending(__ratelimit) => {
                __ratelimit.await
            }
        };
        match __ratelimit {
            ::ratelimit_runtime::__private::Ok([__ratelimitheld_0, quota]) => {
                (
                    ::ratelimit_runtime::__private::admitted(__ratelimitheld_0),
                    ::ratelimit_runtime::__private::admitted(quota),
                )
            }
            ::ratelimit_runtime::__private::Err((_, __ratelimit)) => {
                return ::ratelimit_runtime::FromRejection::from_rejection(__ratelimit);
            }
        }
    };
    { Ok(quota.remaining()) }
}
