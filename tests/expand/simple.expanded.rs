async fn say_hi(name: String) -> Result<String, AppError> {
    {
        let __ratelimit_checked = {
            let mut __ratelimit_call = ::ratelimit_runtime::private::Call::new({
                struct Here;
                static SITE: ::ratelimit_runtime::private::Site = ::ratelimit_runtime::private::Site::new::<
                    Here,
                >(
                    ::ratelimit_runtime::Policy::sliding_window(
                        "",
                        ::ratelimit_runtime::private::micros(30000000),
                        2,
                    ),
                    ::ratelimit_runtime::private::Declaration {
                        file: ::ratelimit_runtime::private::file!(),
                        line: ::ratelimit_runtime::private::line!(),
                        late: &[],
                        cost: "1",
                        key: &["name"],
                        dry_run: false,
                    },
                );
                ::ratelimit_runtime::private::submit!(& SITE);
                &SITE
            });
            ::ratelimit_runtime::private::part(&(name)).add_to(&mut __ratelimit_call);
            __ratelimit_call.check()
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
    { Ok(format!("hi, {name}")) }
}
