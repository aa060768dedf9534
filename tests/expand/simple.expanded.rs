async fn say_hi(name: String) -> Result<String, AppError> {
    {
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
            );
            &SITE
        });
        ::ratelimit_runtime::private::part(&(name)).add_to(&mut __ratelimit_call);
        if let ::ratelimit_runtime::private::Err(__ratelimit_refusal) = __ratelimit_call
            .check()
            .await
        {
            return ::ratelimit_runtime::FromRejection::from_rejection(
                __ratelimit_refusal,
            );
        }
    }
    { Ok(format!("hi, {name}")) }
}
