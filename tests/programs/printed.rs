//! The blocks that the README and the guide print do what their pages state.

#![allow(dead_code, unused_variables, reason = "functions are printed without a body of their own")]

use std::{net::SocketAddr, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo, http::Request};
use ratelimit_runtime::{Limiter, Policy, RateLimitError, caller, testing};
use tokio::{sync::mpsc, time::Instant};
use tower::ServiceExt;

/// Includes a block of a page.
macro_rules! printed {
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $name, ".rs"));
    };
}

mod readme {
    printed!("readme_tests");
}

mod testing_tests {
    printed!("testing_tests");
}

mod tutorial_tests {
    printed!("tutorial_tests");
}

/// Returns the wait of a refused call.
fn wait<T>(answer: Result<T, RateLimitError>) -> Duration {
    match answer {
        Err(RateLimitError::Exceeded(refused)) => refused.retry_after(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("admitted"),
    }
}

/// Returns the status of the answer to a request of this client.
async fn status(app: &Router, client: u8, request: http::request::Builder) -> u16 {
    let peer = ConnectInfo(SocketAddr::from(([192, 0, 2, client], 4711)));
    let request: Request<Body> = request.extension(peer).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status().as_u16()
}

const MINUTE: Duration = Duration::from_secs(60);

mod tutorial {
    use super::*;

    printed!("tutorial");

    #[tokio::test(start_paused = true)]
    async fn the_tutorials_handler_is_refused_at_the_sixth_request() {
        testing::isolated(async {
            let app = app();
            for number in 1..=6 {
                let expected = if number == 6 { 429 } else { 200 };
                assert_eq!(status(&app, 1, Request::get("/reports/2026")).await, expected);
            }
            assert_eq!(status(&app, 2, Request::get("/reports/2026")).await, 200);
        })
        .await;
    }
}

mod pairs {
    use super::*;

    printed!("pairs");

    #[tokio::test(start_paused = true)]
    async fn a_key_of_two_parts_is_counted_by_both() {
        testing::isolated(async {
            testing::assert_limited(10, || export(1, "ali")).await;
            export(2, "ali").await.unwrap();
        })
        .await;
    }
}

mod login {
    use super::*;

    printed!("login");

    #[tokio::test(start_paused = true)]
    async fn a_known_device_logs_in_while_strangers_guess() {
        testing::isolated(async {
            for number in 0..7 {
                let guess = caller::scope(number, log_in("ali", None, "guess")).await;
                assert_eq!(matches!(guess, Err(LoginError::Limited(_))), number >= 5, "{number}");
            }
            let owner = log_in("ali", Some("laptop"), "open sesame");
            caller::scope("home", owner).await.unwrap();
        })
        .await;
    }
}

mod code_by_mail {
    use super::*;

    printed!("code_by_mail");

    #[tokio::test(start_paused = true)]
    async fn a_mailbox_gets_one_code_a_minute_and_a_code_five_guesses() {
        testing::isolated(caller::scope("client", async {
            send_code("ali@example.org").await.unwrap();
            assert_eq!(wait(send_code("ali@example.org").await), MINUTE);
            send_code("bob@example.org").await.unwrap();
            testing::assert_limited(5, || check_code(4711, 0)).await;
        }))
        .await;
    }
}

mod sign_up {
    use super::*;

    printed!("sign_up");

    #[tokio::test(start_paused = true)]
    async fn sign_ups_of_one_address_are_limited() {
        testing::isolated(async {
            let of_client = || caller::scope("client", sign_up("ali@example.org"));
            testing::assert_limited(3, of_client).await;
            caller::scope("another", sign_up("bob@example.org")).await.unwrap();
        })
        .await;
    }
}

mod plans {
    use super::*;

    printed!("plans");

    #[tokio::test(start_paused = true)]
    async fn a_customer_who_changes_plans_keeps_the_count() {
        testing::isolated(async {
            let mut account = Account { id: 1, calls_an_hour: 1, is_internal: false };
            search(&account, "").await.unwrap();
            search(&account, "").await.unwrap_err();
            account.calls_an_hour = 2;
            search(&account, "").await.unwrap();
            search(&account, "").await.unwrap_err();
            account.is_internal = true;
            search(&account, "").await.unwrap();
        })
        .await;
    }
}

mod credits {
    use tokio::time::advance;

    use super::MINUTE;

    printed!("credits");

    #[tokio::test(start_paused = true)]
    async fn credits_pay_after_the_plan_and_never_come_back() {
        let limiter = Limiter::in_memory();
        let purchase = Purchase { id: 1, units: 5 };
        let paid = async |units| {
            pay(&limiter, 7, &purchase, units).await.map(|decision| decision.policy())
        };
        assert_eq!(paid(100).await.unwrap(), "plan");
        assert_eq!(paid(4).await.unwrap(), "credits");
        let refused = paid(2).await.unwrap_err();
        assert_eq!(refused.policy(), "plan");
        assert_eq!(paid(1).await.unwrap(), "credits");
        for _ in 0..365 {
            advance(24 * 60 * MINUTE).await;
            assert_eq!(paid(100).await.unwrap(), "plan");
            paid(1).await.unwrap_err();
        }
        // What was bought since.
        let another = Purchase { id: 2, units: 5 };
        let decision = pay(&limiter, 7, &another, 5).await.unwrap();
        limiter.refund(&decision).await.unwrap();
        assert_eq!(pay(&limiter, 7, &another, 5).await.unwrap().policy(), "credits");
    }
}

mod upload {
    use super::*;

    printed!("upload");

    #[tokio::test(start_paused = true)]
    async fn an_upload_is_charged_by_its_length() {
        testing::isolated(async {
            let app = app();
            let of_bytes = |bytes: u64| Request::put("/files/a").header("content-length", bytes);
            assert_eq!(status(&app, 1, of_bytes(60_000_000)).await, 200);
            assert_eq!(status(&app, 1, of_bytes(60_000_000)).await, 429);
            // Without a length, 10 MB.
            for expected in [200, 200, 200, 200, 429] {
                assert_eq!(status(&app, 1, Request::put("/files/a")).await, expected);
            }
        })
        .await;
    }
}

mod remote {
    use super::*;

    printed!("remote");

    #[tokio::test(start_paused = true)]
    async fn calls_to_another_service_leave_110_ms_apart() {
        testing::isolated(async {
            let start = Instant::now();
            for number in 0..5 {
                call_their_api("weather").await.unwrap();
                assert_eq!(start.elapsed(), number * Duration::from_millis(110));
            }
        })
        .await;
    }
}

mod worker {
    use super::*;

    printed!("worker");

    #[tokio::test(start_paused = true)]
    async fn a_job_that_runs_again_is_charged_once() {
        testing::isolated(async {
            for _ in 0..700 {
                run(&Job { id: 1, tenant: 1 }).await.unwrap();
            }
            for id in 2..=600 {
                run(&Job { id, tenant: 1 }).await.unwrap();
            }
            assert_eq!(wait(run(&Job { id: 601, tenant: 1 }).await), MINUTE);
            run(&Job { id: 1, tenant: 2 }).await.unwrap();
        })
        .await;
    }
}

mod web_socket {
    use super::*;

    printed!("web_socket");

    #[tokio::test(start_paused = true)]
    async fn a_web_socket_is_in_flight_until_it_ends() {
        let limiter = Limiter::in_memory();
        let mut sockets = Vec::new();
        for _ in 0..5 {
            let (socket, messages) = mpsc::channel(100);
            open(limiter.clone(), 1, messages).await.unwrap();
            sockets.push(socket);
        }
        let (socket, messages) = mpsc::channel(100);
        let refused = open(limiter.clone(), 1, messages).await;
        assert!(matches!(refused, Err(RateLimitError::Busy(_))));
        drop(socket);
        // The 31st message of a second ends the connection.
        let socket = sockets.pop().unwrap();
        for _ in 0..31 {
            socket.send(String::new()).await.unwrap();
        }
        socket.closed().await;
        let (_socket, messages) = mpsc::channel(1);
        open(limiter, 1, messages).await.unwrap();
    }
}

mod batch {
    use super::*;

    printed!("batch");

    #[tokio::test(start_paused = true)]
    async fn a_batch_leaves_a_fifth_and_waits_for_the_rest() {
        testing::isolated(async {
            let start = Instant::now();
            batch(&["x"; 9]).await.unwrap();
            assert_eq!(start.elapsed(), Duration::from_secs(1));
            answer("?").await.unwrap();
            assert_eq!(start.elapsed(), Duration::from_secs(1));
        })
        .await;
    }
}

mod fair_shares {
    printed!("fair_shares");

    #[tokio::test(start_paused = true)]
    async fn a_tenant_beyond_its_share_leaves_a_tenth_to_the_others() {
        let limiter = Limiter::in_memory();
        for number in 0..900 {
            admit(&limiter, 1).await.unwrap_or_else(|error| panic!("{number}: {error}"));
        }
        admit(&limiter, 1).await.unwrap_err();
        for _ in 0..100 {
            admit(&limiter, 2).await.unwrap();
        }
        admit(&limiter, 3).await.unwrap_err();
    }
}

mod by_request {
    use super::*;

    printed!("by_request");

    #[tokio::test(start_paused = true)]
    async fn requests_are_limited_by_method_and_route() {
        testing::isolated(async {
            let app = app();
            for _ in 0..60 {
                assert_eq!(status(&app, 1, Request::put("/users/1")).await, 200);
            }
            assert_eq!(status(&app, 1, Request::put("/users/1")).await, 429);
            assert_eq!(status(&app, 1, Request::get("/users/1")).await, 200);
            assert_eq!(status(&app, 1, Request::get("/healthz")).await, 200);
        })
        .await;
    }
}

mod other_origins {
    use super::{Body, Request, ServiceExt};

    printed!("other_origins");

    #[tokio::test]
    async fn a_refusal_exposes_its_fields_to_the_origin() {
        // No peer is known here: the layer itself refuses.
        let request = Request::get("/").header("origin", "https://app.example.com");
        let response = app().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 400);
        let exposed = response.headers()["access-control-expose-headers"].to_str().unwrap();
        assert_eq!(exposed, ratelimit_runtime::web::EXPOSED_HEADERS.join(","));
    }
}

mod lost_refusals {
    use super::{Limiter, MINUTE, Policy};

    printed!("lost_refusals");

    #[tokio::test]
    async fn a_refusal_in_a_blanket_error_keeps_its_status() {
        let never = Policy::sliding_window("never", MINUTE, 0);
        let error = Limiter::in_memory().check(&never, "alice").await.unwrap_err();
        let answer = AppError::from(error).into_response();
        assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY);
    }
}

mod metering {
    use super::*;

    printed!("metering");

    #[tokio::test(start_paused = true)]
    async fn a_call_is_settled_at_its_tokens() {
        testing::isolated(async {
            // 10 000 are reserved, and 5 000 taken.
            complete("ali", "", 10_000).await.unwrap();
            complete("ali", "", 5_000).await.unwrap();
            assert_eq!(wait(complete("ali", "", 2_501).await), MINUTE);
            complete("ali", "", 2_500).await.unwrap();
        })
        .await;
    }
}

mod stream {
    use super::*;

    printed!("stream");

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_settled_at_the_words_that_went_out() {
        testing::isolated(async {
            let mut streams = Vec::new();
            for _ in 0..5 {
                streams.push(words("ali", "one two three").await.unwrap());
            }
            assert!(matches!(words("ali", "").await, Err(RateLimitError::Busy(_))));
            for mut words in streams {
                // The client leaves half-way.
                assert_eq!(words.next(), Some("one"));
            }
            // 5 of 10 000 units are taken: 19 reservations of 500 fit, one after the other at their whole length.
            for _ in 0..19 {
                let words = words("ali", "one two").await.unwrap();
                assert_eq!(words.count(), 2);
            }
        })
        .await;
    }
}

mod migration {
    use super::*;

    printed!("migration");

    #[tokio::test(start_paused = true)]
    async fn the_layers_admit_five_at_once_and_then_one_every_2_s() {
        testing::isolated(async {
            let app = app();
            for expected in [200, 200, 200, 200, 200, 429] {
                assert_eq!(status(&app, 1, Request::get("/")).await, expected);
            }
            tokio::time::advance(Duration::from_secs(2)).await;
            assert_eq!(status(&app, 1, Request::get("/")).await, 200);
            assert_eq!(status(&app, 1, Request::get("/")).await, 429);
        })
        .await;
    }
}
