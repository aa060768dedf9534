async fn say_hi(name: String) -> Result<String, AppError> {
    {
        fn __ratelimit() -> &'static ::ratelimit_runtime::private::Site {
            static SITE: ::ratelimit_runtime::private::Site = ::ratelimit_runtime::private::Site::new(
                __ratelimit,
                ::ratelimit_runtime::Policy::sliding_window(
                    "",
                    ::ratelimit_runtime::private::micros(30000000),
                    2,
                ),
                ::ratelimit_runtime::private::Declaration {
                    file: ::ratelimit_runtime::private::file!(),
                    line: ::ratelimit_runtime::private::line!(),
                    column: ::ratelimit_runtime::private::column!(),
                    module: ::ratelimit_runtime::private::module_path!(),
                    late: &[],
                    cost: "1",
                    key: &["name"],
                    dry_run: false,
                },
            );
            ::ratelimit_runtime::private::submit!(& SITE);
            &SITE
        }
        let __ratelimit = {
            let mut __ratelimit = ::ratelimit_runtime::private::Call::new(__ratelimit());
            ::ratelimit_runtime::private::KeyPart::add_to(
                ::ratelimit_runtime::private::part(&(name)).pick(),
                &mut __ratelimit,
            );
            __ratelimit.check()
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
    { Ok(format!("hi, {name}")) }
}
