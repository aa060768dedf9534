pub async fn report<T: Display>(
    tenant: T,
    user: &User,
    plan: Plan,
    pages: u32,
    limiter: &Limiter,
) -> Result<impl Display, AppError> {
    if ::ratelimit_runtime::private::unless(user.is_admin) {
        fn __ratelimit() -> &'static ::ratelimit_runtime::private::Site {
            static SITE: ::ratelimit_runtime::private::Site = ::ratelimit_runtime::private::Site::new(
                __ratelimit,
                ::ratelimit_runtime::Policy::sliding_window(
                        "reports",
                        ::ratelimit_runtime::private::micros(0),
                        0,
                    )
                    .tier(::ratelimit_runtime::private::micros(86400000000), 1000),
                ::ratelimit_runtime::private::Declaration {
                    file: ::ratelimit_runtime::private::file!(),
                    line: ::ratelimit_runtime::private::line!(),
                    column: ::ratelimit_runtime::private::column!(),
                    module: ::ratelimit_runtime::private::module_path!(),
                    late: &["plan . period", "plan . threshold"],
                    cost: "pages",
                    key: &["tenant", "user . id"],
                    dry_run: true,
                },
            );
            ::ratelimit_runtime::private::submit!(& SITE);
            &SITE
        }
        let __ratelimit = {
            let mut __ratelimit = (
                ::ratelimit_runtime::private::Call::new(__ratelimit()),
                ::ratelimit_runtime::Policy::sliding_window(
                        "reports",
                        plan.period,
                        ::ratelimit_runtime::private::Units::units(
                            ::ratelimit_runtime::private::number(plan.threshold).pick(),
                        ),
                    )
                    .tier(::ratelimit_runtime::private::micros(86400000000), 1000),
            );
            __ratelimit
                .0
                .cost(
                    ::ratelimit_runtime::private::Units::units(
                        ::ratelimit_runtime::private::number(pages).pick(),
                    ),
                );
            __ratelimit.0.max_wait(::ratelimit_runtime::private::micros(2000000));
            __ratelimit.0.on_store_error(::ratelimit_runtime::OnStoreError::Deny);
            __ratelimit.0.limiter(&(limiter));
            ::ratelimit_runtime::private::KeyPart::add_to(
                ::ratelimit_runtime::private::part(&(tenant)).pick(),
                &mut __ratelimit.0,
            );
            ::ratelimit_runtime::private::KeyPart::add_to(
                ::ratelimit_runtime::private::part(&(user.id)).pick(),
                &mut __ratelimit.0,
            );
            __ratelimit.0.check_under(&__ratelimit.1)
        };
        if let ::ratelimit_runtime::private::Err(__ratelimit) = match __ratelimit {
            ::ratelimit_runtime::private::Checked::Decided(__ratelimit) => __ratelimit,
            ::ratelimit_runtime::private::Checked::Undecided(__ratelimit) => {
                __ratelimit.await
            }
        } {
            return ::ratelimit_runtime::FromRejection::from_rejection(__ratelimit);
        }
    }
    { Ok(tenant) }
}
