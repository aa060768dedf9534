impl Service {
    #[rate_limit(key = self.tenant)]
    async fn native(&self) -> Result<(), AppError> {
        Ok(())
    }

    // As `#[async_trait]` leaves it.
    #[rate_limit(key = self.tenant)]
    fn boxed<'life0, 'async_trait>(
        &'life0 self,
        (a, b): (u32, u32),
    ) -> ::core::pin::Pin<
        Box<
            dyn ::core::future::Future<Output = Result<u32, AppError>>
                + ::core::marker::Send
                + 'async_trait,
        >,
    >
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            if let ::core::option::Option::Some(__ret) =
                ::core::option::Option::None::<Result<u32, AppError>>
            {
                #[allow(unreachable_code)]
                return __ret;
            }
            let __self = self;
            let (a, b) = __arg1;
            let __ret: Result<u32, AppError> = { Ok(a + b) };
            #[allow(unreachable_code)]
            __ret
        })
    }
}
