impl Service {
    async fn native(&self) -> Result<(), AppError> {
        {
            fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
                static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                    __ratelimit,
                    ::ratelimit_runtime::Policy::sliding_window(
                        "",
                        ::ratelimit_runtime::__private::micros(60000000),
                        3,
                    ),
                    ::ratelimit_runtime::__private::Declaration {
                        file: ::ratelimit_runtime::__private::file!(),
                        line: ::ratelimit_runtime::__private::line!(),
                        column: ::ratelimit_runtime::__private::column!(),
                        module: ::ratelimit_runtime::__private::module_path!(),
                        dynamic: &[],
                        cost: "1",
                        key: &["self . tenant"],
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
                __ratelimit.self_type::<Self>();
                ::ratelimit_runtime::__private::KeyPart::push_to(
                    ::ratelimit_runtime::__private::part(&(self.tenant)).pick(),
                    &mut __ratelimit.caller,
                );
                __ratelimit.admit(::ratelimit_runtime::__private::limiter())
            };
            match __ratelimit {
                ::ratelimit_runtime::__private::Started::Ready(
                    ::ratelimit_runtime::__private::Ok(__ratelimit),
                ) => __ratelimit,
                ::ratelimit_runtime::__private::Started::Ready(
                    ::ratelimit_runtime::__private::Err(__ratelimit),
                ) => {
                    return ::ratelimit_runtime::FromRejection::from_rejection(
                        __ratelimit,
                    );
                }
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
                fn __ratelimit() -> &'static ::ratelimit_runtime::__private::Callsite {
                    static CALLSITE: ::ratelimit_runtime::__private::Callsite = ::ratelimit_runtime::__private::Callsite::new(
                        __ratelimit,
                        ::ratelimit_runtime::Policy::sliding_window(
                            "",
                            ::ratelimit_runtime::__private::micros(60000000),
                            3,
                        ),
                        ::ratelimit_runtime::__private::Declaration {
                            file: ::ratelimit_runtime::__private::file!(),
                            line: ::ratelimit_runtime::__private::line!(),
                            column: ::ratelimit_runtime::__private::column!(),
                            module: ::ratelimit_runtime::__private::module_path!(),
                            dynamic: &[],
                            cost: "1",
                            key: &["self . tenant"],
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
                    __ratelimit.self_type::<Self>();
                    ::ratelimit_runtime::__private::KeyPart::push_to(
                        ::ratelimit_runtime::__private::part(&(__self.tenant)).pick(),
                        &mut __ratelimit.caller,
                    );
                    __ratelimit.admit(::ratelimit_runtime::__private::limiter())
                };
                match __ratelimit {
                    ::ratelimit_runtime::__private::Started::Ready(
                        ::ratelimit_runtime::__private::Ok(__ratelimit),
                    ) => __ratelimit,
                    ::ratelimit_runtime::__private::Started::Ready(
                        ::ratelimit_runtime::__private::Err(__ratelimit),
                    ) => {
                        return ::ratelimit_runtime::__private::RefusalInBox::from_rejection(
                            __ratelimit,
                        );
                    }
                    ::ratelimit_runtime::__private::Started::Pending(__ratelimit) => {
                        if let ::ratelimit_runtime::__private::Err(__ratelimit) = __ratelimit
                            .await
                        {
                            return ::ratelimit_runtime::__private::RefusalInBox::from_rejection(
                                __ratelimit,
                            );
                        }
                    }
                }
            }
            let __ret: Result<u32, AppError> = { Ok(a + b) };
            #[allow(unreachable_code)] __ret
        })
    }
}
