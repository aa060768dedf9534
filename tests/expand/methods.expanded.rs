impl Service {
    async fn native(&self) -> Result<(), AppError> {
        {
            let __ratelimit_checked = {
                let mut __ratelimit_call = ::ratelimit_runtime::private::Call::new({
                    struct Here;
                    static SITE: ::ratelimit_runtime::private::Site = ::ratelimit_runtime::private::Site::new::<
                        Here,
                    >(
                        ::ratelimit_runtime::Policy::sliding_window(
                            "",
                            ::ratelimit_runtime::private::micros(60000000),
                            3,
                        ),
                        ::ratelimit_runtime::private::Declaration {
                            file: ::ratelimit_runtime::private::file!(),
                            line: ::ratelimit_runtime::private::line!(),
                            late: &[],
                            cost: "1",
                            key: &["self . tenant"],
                            dry_run: false,
                        },
                    );
                    ::ratelimit_runtime::private::submit!(& SITE);
                    &SITE
                });
                __ratelimit_call.receiver::<Self>();
                ::ratelimit_runtime::private::part(&(self.tenant))
                    .add_to(&mut __ratelimit_call);
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
        { Ok(()) }
    }
    fn boxed<'life0, 'async_trait>(
        &'life0 self,
        (a, b): (u32, u32),
    ) -> ::core::pin::Pin<
        Box<
            dyn ::core::future::Future<
                Output = Result<u32, AppError>,
            > + ::core::marker::Send + 'async_trait,
        >,
    >
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            if let ::core::option::Option::Some(__ret) = ::core::option::Option::None::<
                Result<u32, AppError>,
            > {
                #[allow(unreachable_code)] return __ret;
            }
            let __self = self;
            let (a, b) = __arg1;
            {
                let __ratelimit_checked = {
                    let mut __ratelimit_call = ::ratelimit_runtime::private::Call::new({
                        struct Here;
                        static SITE: ::ratelimit_runtime::private::Site = ::ratelimit_runtime::private::Site::new::<
                            Here,
                        >(
                            ::ratelimit_runtime::Policy::sliding_window(
                                "",
                                ::ratelimit_runtime::private::micros(60000000),
                                3,
                            ),
                            ::ratelimit_runtime::private::Declaration {
                                file: ::ratelimit_runtime::private::file!(),
                                line: ::ratelimit_runtime::private::line!(),
                                late: &[],
                                cost: "1",
                                key: &["self . tenant"],
                                dry_run: false,
                            },
                        );
                        ::ratelimit_runtime::private::submit!(& SITE);
                        &SITE
                    });
                    __ratelimit_call.receiver::<Self>();
                    ::ratelimit_runtime::private::part(&(__self.tenant))
                        .add_to(&mut __ratelimit_call);
                    __ratelimit_call.check()
                };
                if let ::ratelimit_runtime::private::Err(__ratelimit_refusal) = match __ratelimit_checked {
                    ::ratelimit_runtime::private::Checked::Decided(
                        __ratelimit_answer,
                    ) => __ratelimit_answer,
                    ::ratelimit_runtime::private::Checked::Undecided(
                        __ratelimit_answer,
                    ) => __ratelimit_answer.await,
                } {
                    return ::ratelimit_runtime::FromRejection::from_rejection(
                        __ratelimit_refusal,
                    );
                }
            }
            let __ret: Result<u32, AppError> = { Ok(a + b) };
            #[allow(unreachable_code)] __ret
        })
    }
}
