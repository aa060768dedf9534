//! The default name of a limit is the path of its function under any wrapping macro; no two functions share
//! one.

use std::collections::BTreeSet;

use actix_web::{App, test};
use harness::exceeded;
use ratelimit_runtime::{RateLimitError, limits::policies, rate_limit};

type Done = Result<(), RateLimitError>;

/// The name under which the second call of a function is refused.
async fn name_of<F: Future<Output = Done>>(mut call: impl FnMut() -> F) -> String {
    call().await.unwrap();
    exceeded(call().await).policy().to_owned()
}

/// The names of this file's functions.
fn listed() -> Vec<&'static str> {
    let here = policies().into_iter().filter(|policy| policy.file() == file!());
    here.map(|policy| policy.name()).collect()
}

mod routes {
    use actix_web::Result;

    use super::rate_limit;

    #[actix_web::get("/below")]
    #[rate_limit(threshold = 1)]
    pub(super) async fn below() -> Result<&'static str> {
        Ok("below")
    }

    #[rate_limit(threshold = 1)]
    #[actix_web::get("/above")]
    pub(super) async fn above() -> Result<&'static str> {
        Ok("above")
    }

    #[actix_web::routes]
    #[get("/several")]
    #[post("/several")]
    #[rate_limit(threshold = 1, fallible)]
    pub(super) async fn several() -> &'static str {
        "several"
    }
}

#[actix_web::test]
async fn a_route_of_actix_has_the_name_of_its_function() {
    let app = App::new().service(routes::below).service(routes::above).service(routes::several);
    let app = test::init_service(app).await;
    for name in ["below", "above", "several"] {
        let path = format!("/{name}");
        let request = || test::TestRequest::get().uri(&path).to_request();
        assert!(test::call_service(&app, request()).await.status().is_success());
        let refused = test::call_service(&app, request()).await;
        let field = refused.headers().get("ratelimit").unwrap().to_str().unwrap();
        assert!(field.starts_with(&format!("\"attribute::names::routes::{name}\"")), "{field}");
    }
}

mod checked {
    use super::{Done, rate_limit};

    #[axum::debug_handler]
    #[rate_limit(threshold = 1)]
    pub(super) async fn below() -> Done {
        Ok(())
    }

    #[rate_limit(name = "above-the-check", threshold = 1)]
    #[axum::debug_handler]
    pub(super) async fn above() -> Done {
        Ok(())
    }
}

#[tokio::test]
async fn copies_that_axum_makes_for_its_checks_are_not_listed() {
    assert_eq!(name_of(checked::below).await, "attribute::names::checked::below");
    assert_eq!(name_of(checked::above).await, "above-the-check");
    let mut names = listed();
    names.retain(|name| name.contains("check"));
    assert_eq!(names, ["above-the-check", "attribute::names::checked::below"]);
}

/// Functions as `#[handler]` of several frameworks emits them: in a method of a type of their name, and as a
/// method of one.
mod handlers {
    use super::{Done, rate_limit};

    pub(super) trait Endpoint {
        fn call(&self) -> impl Future<Output = Done>;
    }

    macro_rules! handler {
        (async fn $name:ident() -> $done:ty $body:block) => {
            #[allow(non_camel_case_types)]
            pub(super) struct $name;

            impl Endpoint for $name {
                async fn call(&self) -> Done {
                    #[rate_limit(threshold = 1)]
                    async fn $name() -> $done $body

                    $name().await
                }
            }
        };
    }

    macro_rules! handler_as_method {
        (async fn $name:ident() -> $done:ty $body:block) => {
            #[allow(non_camel_case_types)]
            pub(super) struct $name;

            impl $name {
                #[rate_limit(threshold = 1)]
                async fn $name() -> $done $body
            }

            impl Endpoint for $name {
                async fn call(&self) -> Done {
                    Self::$name().await
                }
            }
        };
    }

    handler! {
        async fn hello() -> Done { Ok(()) }
    }

    handler_as_method! {
        async fn goodbye() -> Done { Ok(()) }
    }
}

#[tokio::test]
async fn a_handler_that_a_macro_makes_a_type_of_has_the_name_of_its_function() {
    use handlers::Endpoint;

    assert_eq!(name_of(|| handlers::hello.call()).await, "attribute::names::handlers::hello");
    assert_eq!(name_of(|| handlers::goodbye.call()).await, "attribute::names::handlers::goodbye");
}

async fn outer() -> [String; 2] {
    async fn middle() -> String {
        #[rate_limit(threshold = 1)]
        async fn inner() -> Done {
            Ok(())
        }

        name_of(inner).await
    }

    let block = async {
        #[rate_limit(threshold = 1)]
        async fn in_a_block() -> Done {
            Ok(())
        }

        name_of(in_a_block).await
    };
    [middle().await, block.await]
}

#[tokio::test]
async fn a_function_in_functions_has_their_path() {
    assert_eq!(
        outer().await,
        ["attribute::names::outer::middle::inner", "attribute::names::outer::in_a_block"]
    );
}

async fn two_blocks(first: bool) -> Done {
    if first {
        #[rate_limit(threshold = 1)]
        async fn step() -> Done {
            Ok(())
        }

        step().await
    } else {
        #[rate_limit(threshold = 1)]
        async fn step() -> Done {
            Ok(())
        }

        step().await
    }
}

#[tokio::test]
async fn functions_of_one_name_in_two_blocks_do_not_share() {
    assert_eq!(name_of(|| two_blocks(true)).await, "attribute::names::two_blocks::step");
    assert_eq!(name_of(|| two_blocks(false)).await, "attribute::names::two_blocks::step#2");
}

/// A function inside one of its own name, as a wrapping macro emits it.
#[rate_limit(threshold = 1)]
async fn echo(deeper: bool) -> Done {
    #[rate_limit(threshold = 1)]
    async fn echo() -> Done {
        Ok(())
    }

    if deeper { echo().await } else { Ok(()) }
}

#[tokio::test]
async fn a_function_within_one_of_its_own_name_does_not_share() {
    echo(true).await.unwrap();
    assert_eq!(exceeded(echo(true).await).policy(), "attribute::names::echo");
    let listed = listed();
    let names: BTreeSet<_> = listed.iter().copied().collect();
    assert!(names.contains("attribute::names::echo::echo"), "{names:?}");
    assert_eq!(names.len(), listed.len(), "{names:?}");
}
