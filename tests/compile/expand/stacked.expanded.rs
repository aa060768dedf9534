#[tracing::instrument]
async fn two(user: User) -> Result<Page, AppError> {
    let (quota, __ratelimitheld_1) = {
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
                            5,
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
                        ::ratelimit_runtime::__private::part(&(user.id)).pick(),
                        &mut __ratelimit.caller,
                    );
                    __ratelimit.join(::ratelimit_runtime::__private::limiter())
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
                            key: &["user . tenant"],
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
                        __ratelimit.options.unvalidated();
                        ::ratelimit_runtime::__private::KeyPart::push_to(
                            ::ratelimit_runtime::__private::part(&(user.tenant)).pick(),
                            &mut __ratelimit.caller,
                        );
                        __ratelimit.join(::ratelimit_runtime::__private::limiter())
                    };
                    __ratelimit
                } else {
                    ::ratelimit_runtime::__private::JointCheck::skipped({
                        let mut __ratelimit = ::ratelimit_runtime::__private::CallBuilder::new(
                            __ratelimit(),
                        );
                        __ratelimit.skipped()
                    })
                }
            },
        ]);
        let __ratelimit = match __ratelimit {
            ::ratelimit_runtime::__private::Started::Ready(__ratelimit) => __ratelimit,
            ::ratelimit_runtime::__private::Started::Pending(__ratelimit) => {
                __ratelimit.await
            }
        };
        match __ratelimit {
            ::ratelimit_runtime::__private::Ok([quota, __ratelimitheld_1]) => {
                (
                    ::ratelimit_runtime::__private::admitted(quota),
                    ::ratelimit_runtime::__private::admitted(__ratelimitheld_1),
                )
            }
            ::ratelimit_runtime::__private::Err((1usize, __ratelimit)) => {
                let error = __ratelimit;
                return if false {
                    ::ratelimit_runtime::__private::never()
                } else {
                    Page::busy(error)
                };
            }
            ::ratelimit_runtime::__private::Err((_, __ratelimit)) => {
                return ::ratelimit_runtime::FromRejection::from_rejection(__ratelimit);
            }
        }
    };
    { Ok(quota.remaining().into()) }
}
