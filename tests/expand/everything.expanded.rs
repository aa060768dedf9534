pub async fn report<T: Display>(
    tenant: T,
    user: &User,
    plan: Plan,
    pages: u32,
    limiter: &Limiter,
) -> Result<impl Display, AppError> {
    if ::ratelimit_runtime::private::unless(user.is_admin) {
        let __ratelimit_checked = {
            let mut __ratelimit_call = ::ratelimit_runtime::private::Call::new({
                struct Here;
                static SITE: ::ratelimit_runtime::private::Site = ::ratelimit_runtime::private::Site::new::<
                    Here,
                >(
                    ::ratelimit_runtime::Policy::sliding_window(
                            "reports",
                            ::ratelimit_runtime::private::micros(0),
                            0,
                        )
                        .tier(::ratelimit_runtime::private::micros(86400000000), 1000),
                    ::ratelimit_runtime::private::Declaration {
                        file: ::ratelimit_runtime::private::file!(),
                        line: ::ratelimit_runtime::private::line!(),
                        late: &["plan . period", "plan . threshold"],
                        cost: "pages",
                        key: &["tenant", "user . id"],
                        dry_run: true,
                    },
                );
                ::ratelimit_runtime::private::submit!(& SITE);
                &SITE
            });
            let __ratelimit_policy = ::ratelimit_runtime::Policy::sliding_window(
                    "reports",
                    plan.period,
                    plan.threshold,
                )
                .tier(::ratelimit_runtime::private::micros(86400000000), 1000);
            __ratelimit_call.cost(pages);
            __ratelimit_call.max_wait(::ratelimit_runtime::private::micros(2000000));
            __ratelimit_call.on_store_error(::ratelimit_runtime::OnStoreError::Deny);
            __ratelimit_call.limiter(&(limiter));
            ::ratelimit_runtime::private::part(&(tenant)).add_to(&mut __ratelimit_call);
            ::ratelimit_runtime::private::part(&(user.id)).add_to(&mut __ratelimit_call);
            __ratelimit_call.check_under(&__ratelimit_policy)
        };
        if let ::ratelimit_runtime::private::Err(__ratelimit_refusal) = match __ratelimit_checked {
            ::ratelimit_runtime::private::Checked::Decided(__ratelimit_answer) => {
                __ratelimit_answer
            }
            ::ratelimit_runtime::private::Checked::Undecided(__ratelimit_answer) => {
                __ratelimit_answer.await
            }
        } {
            return ::ratelimit_runtime::FromRejection::from_rejection(
                __ratelimit_refusal,
            );
        }
    }
    { Ok(tenant) }
}
