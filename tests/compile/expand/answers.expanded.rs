async fn told_when_refused(user: User) -> Page {
    let quota = {
        fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
            static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                __ratelimit,
                ::ratelimit_runtime::Policy::sliding_window(
                    "",
                    ::ratelimit_runtime::__private::micros(60000000),
                    1,
                ),
                ::ratelimit_runtime::__private::Declaration {
                    file: ::ratelimit_runtime::__private::file!(),
                    line: ::ratelimit_runtime::__private::line!(),
                    column: ::ratelimit_runtime::__private::column!(),
                    module: ::ratelimit_runtime::__private::module_path!(),
                    dynamic: &[],
                    cost: "1",
                    key: &["user"],
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
                    ::ratelimit_runtime::__private::part(&(user)).pick(),
                    &mut __ratelimit.caller,
                );
                __ratelimit.decide(::ratelimit_runtime::__private::limiter())
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
                    let error = __ratelimit;
                    return if false {
                        ::ratelimit_runtime::__private::never()
                    } else {
                        told(user, error).await
                    };
                }
            }
        } else {
            let mut __ratelimit = ::ratelimit_runtime::__private::CallBuilder::new(
                __ratelimit(),
            );
            __ratelimit.skipped()
        }
    };
    { Page::fresh(user, quota.remaining()) }
}
async fn runs_anyway(plan: Plan) -> bool {
    let quota = {
        fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
            static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                __ratelimit,
                ::ratelimit_runtime::Policy::sliding_window(
                    "",
                    ::ratelimit_runtime::__private::micros(60000000),
                    0,
                ),
                ::ratelimit_runtime::__private::Declaration {
                    file: ::ratelimit_runtime::__private::file!(),
                    line: ::ratelimit_runtime::__private::line!(),
                    column: ::ratelimit_runtime::__private::column!(),
                    module: ::ratelimit_runtime::__private::module_path!(),
                    dynamic: &["plan . calls"],
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
                    "",
                    ::ratelimit_runtime::__private::micros(60000000),
                    ::ratelimit_runtime::__private::Units::units(
                        ::ratelimit_runtime::__private::number(plan.calls).pick(),
                    ),
                ),
            );
            __ratelimit.0.options.unvalidated();
            __ratelimit
                .0
                .decide_under(::ratelimit_runtime::__private::limiter(), &__ratelimit.1)
        };
        let __ratelimit = match __ratelimit {
            ::ratelimit_runtime::__private::Started::Ready(__ratelimit) => __ratelimit,
            ::ratelimit_runtime::__private::Started::Pending(__ratelimit) => {
                __ratelimit.await
            }
        };
        __ratelimit
    };
    { quota.is_ok() }
}
async fn does_nothing() {
    {
        fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
            static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                __ratelimit,
                ::ratelimit_runtime::Policy::sliding_window(
                    "",
                    ::ratelimit_runtime::__private::micros(60000000),
                    1,
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
            __ratelimit.admit(::ratelimit_runtime::__private::limiter())
        };
        let __ratelimit = match __ratelimit {
            ::ratelimit_runtime::__private::Started::Ready(__ratelimit) => __ratelimit,
            ::ratelimit_runtime::__private::Started::Pending(__ratelimit) => {
                __ratelimit.await
            }
        };
        match __ratelimit {
            ::ratelimit_runtime::__private::Ok(__ratelimit) => __ratelimit,
            ::ratelimit_runtime::__private::Err(_) => {
                return;
            }
        }
    }
    {}
}
