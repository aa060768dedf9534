//! The limiters, each as its documentation sets it up.

use std::{net::SocketAddr, num::NonZeroU32, pin::Pin, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    http::{Request, StatusCode},
    routing::get,
};
use ratelimit_runtime::{
    Limiter, Policy, RateLimitError,
    web::{
        ClientAddress,
        tower::{Identity, IdentityLayer, RateLimitLayer},
    },
};
use tower::ServiceExt;
use tower_governor::{
    GovernorError, GovernorLayer, governor::GovernorConfigBuilder, key_extractor::KeyExtractor,
    key_extractor::SmartIpKeyExtractor,
};
use trypema::{BucketSize, RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize};

/// A limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Governor,
    TowerGovernor,
    ActixLimitation,
    Trypema,
    #[cfg(feature = "limitador")]
    Limitador,
    InMemory,
    OnRedis,
}

impl Peer {
    pub(crate) const ALL: &[Self] = &[
        Self::Governor,
        Self::TowerGovernor,
        Self::ActixLimitation,
        Self::Trypema,
        #[cfg(feature = "limitador")]
        Self::Limitador,
        Self::InMemory,
        Self::OnRedis,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Governor => "governor",
            Self::TowerGovernor => "tower_governor",
            Self::ActixLimitation => "actix-limitation",
            Self::Trypema => "trypema",
            #[cfg(feature = "limitador")]
            Self::Limitador => "limitador",
            Self::InMemory => "ours, in memory",
            Self::OnRedis => "ours, on Redis",
        }
    }

    pub(crate) fn named(name: &str) -> Self {
        *Self::ALL.iter().find(|peer| peer.name() == name).expect("the name of a peer")
    }

    pub(crate) fn is_on_redis(self) -> bool {
        !matches!(self, Self::Governor | Self::TowerGovernor | Self::InMemory)
    }

    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::InMemory | Self::OnRedis)
    }
}

/// A limit of calls in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) threshold: u32,
    pub(crate) seconds: u64,
}

impl Limit {
    pub(crate) fn period(self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn policy(self) -> Policy {
        Policy::sliding_window("abuse", self.period(), self.threshold)
    }
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Admitted,
    Refused,
    Failed,
}

impl Answer {
    fn of(is_admitted: bool) -> Self {
        if is_admitted { Self::Admitted } else { Self::Refused }
    }

    fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::OK => Self::Admitted,
            StatusCode::TOO_MANY_REQUESTS => Self::Refused,
            _ => Self::Failed,
        }
    }
}

type Pending = Pin<Box<dyn Future<Output = Answer> + Send>>;
type Reset = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>>>;

/// A limiter that is ready for calls.
pub(crate) struct Ready {
    /// A call of this caller.
    pub(crate) ask: Box<dyn Fn(String) -> Pending>,
    /// Forgets the calls of `alice`, if the limiter can.
    pub(crate) reset: Option<Reset>,
    /// A service that counts the clients behind a proxy, if the limiter has a layer for that.
    pub(crate) service: Option<Router>,
}

pub(crate) async fn ready(peer: Peer, url: &str, limit: Limit) -> Ready {
    match peer {
        Peer::Governor => governor(limit),
        Peer::TowerGovernor => tower_governor(limit),
        Peer::ActixLimitation => actix_limitation(url, limit),
        Peer::Trypema => trypema(url, limit).await,
        #[cfg(feature = "limitador")]
        Peer::Limitador => limitador(url, limit).await,
        Peer::InMemory => ours(Limiter::in_memory(), limit),
        Peer::OnRedis => ours(Limiter::connect(url).await.expect("a limiter"), limit),
    }
}

fn ours(limiter: Limiter, limit: Limit) -> Ready {
    let policy = limit.policy();
    let client = ClientAddress::behind_proxies(["127.0.0.1"]).expect("an address");
    let service = routes()
        .layer(RateLimitLayer::new(policy).limiter(limiter.clone()))
        .layer(IdentityLayer::new(Identity::address(client)));
    let of_reset = limiter.clone();
    Ready {
        ask: Box::new(move |caller| {
            let limiter = limiter.clone();
            Box::pin(async move {
                match limiter.check(&policy, &*caller).await {
                    Ok(_) => Answer::Admitted,
                    Err(RateLimitError::Exceeded(_)) => Answer::Refused,
                    Err(_) => Answer::Failed,
                }
            })
        }),
        reset: Some(Box::new(move || {
            let limiter = of_reset.clone();
            Box::pin(async move { limiter.reset(&policy, "alice").await.expect("a reset") })
        })),
        service: Some(service),
    }
}

fn governor(limit: Limit) -> Ready {
    let burst = NonZeroU32::new(limit.threshold).expect("a threshold");
    let quota = governor::Quota::with_period(limit.period() / limit.threshold);
    let quota = quota.expect("a period").allow_burst(burst);
    let limiter = Arc::new(governor::DefaultKeyedRateLimiter::keyed(quota));
    let ask = move |caller: String| -> Pending {
        let limiter = Arc::clone(&limiter);
        Box::pin(async move { Answer::of(limiter.check_key(&caller).is_ok()) })
    };
    Ready { ask: Box::new(ask), reset: None, service: None }
}

fn routes() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// The caller is in a header, which the program trusts.
#[derive(Clone)]
struct CallerHeader;

impl KeyExtractor for CallerHeader {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, GovernorError> {
        let name = request.headers().get("caller").and_then(|name| name.to_str().ok());
        name.map(str::to_owned).ok_or(GovernorError::UnableToExtractKey)
    }
}

fn tower_governor(limit: Limit) -> Ready {
    let every = limit.period() / limit.threshold;
    let by_name = {
        let mut config = GovernorConfigBuilder::default();
        config.period(every).burst_size(limit.threshold);
        GovernorLayer::new(config.key_extractor(CallerHeader).finish().expect("a limit"))
    };
    let by_client = {
        let mut config = GovernorConfigBuilder::default();
        config.period(every).burst_size(limit.threshold);
        GovernorLayer::new(config.key_extractor(SmartIpKeyExtractor).finish().expect("a limit"))
    };
    let service = routes().layer(by_name);
    let ask = move |caller: String| -> Pending {
        let request = Request::get("/").header("caller", caller).body(Body::empty());
        let answer = service.clone().oneshot(request.expect("a request"));
        Box::pin(async move { Answer::of_status(answer.await.expect("a response").status()) })
    };
    Ready { ask: Box::new(ask), reset: None, service: Some(routes().layer(by_client)) }
}

/// A request through a proxy at 127.0.0.1, which appends the client's address to what the client
/// sent.
pub(crate) fn through_proxy(forged: u32) -> Request<Body> {
    Request::get("/")
        .header("x-forwarded-for", format!("198.51.100.{forged}, 203.0.113.7"))
        .extension(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 40_000))))
        .body(Body::empty())
        .expect("a request")
}

pub(crate) async fn status(service: &Router, request: Request<Body>) -> Answer {
    Answer::of_status(service.clone().oneshot(request).await.expect("a response").status())
}

fn actix_limitation(url: &str, limit: Limit) -> Ready {
    let limiter = actix_limitation::Limiter::builder(url)
        .limit(limit.threshold as usize)
        .period(limit.period())
        .build()
        .expect("a limiter");
    let ask = move |caller: String| -> Pending {
        let limiter = limiter.clone();
        Box::pin(async move {
            match limiter.count(caller).await {
                Ok(_) => Answer::Admitted,
                Err(actix_limitation::Error::LimitExceeded(_)) => Answer::Refused,
                Err(_) => Answer::Failed,
            }
        })
    };
    Ready { ask: Box::new(ask), reset: None, service: None }
}

async fn trypema(url: &str, limit: Limit) -> Ready {
    let client = redis::Client::open(url).expect("a URL");
    let connection = client.get_connection_manager().await.expect("a connection");
    let rate = if limit.seconds == 60 {
        RateLimit::per_minute_or_panic(limit.threshold.into())
    } else {
        RateLimit::per_second_or_panic(f64::from(limit.threshold) / limit.period().as_secs_f64())
    };
    let provider = trypema::redis::RedisRateLimiterProvider::builder(connection)
        .window_size(WindowSize::seconds_or_panic(limit.seconds))
        .bucket_size(BucketSize::milliseconds_or_panic(10))
        .build()
        .expect("a limiter");
    let ask = move |caller: String| -> Pending {
        let provider = Arc::clone(&provider);
        Box::pin(async move {
            let key = trypema::redis::RedisKey::try_from(caller.as_str()).expect("a key");
            match provider.absolute().inc(&key, &rate, 1).await {
                Ok(decision) => Answer::of(matches!(decision, RateLimitDecision::Allowed)),
                Err(_) => Answer::Failed,
            }
        })
    };
    Ready { ask: Box::new(ask), reset: None, service: None }
}

#[cfg(feature = "limitador")]
async fn limitador(url: &str, limit: Limit) -> Ready {
    use std::collections::HashMap;

    use limitador::{
        AsyncRateLimiter,
        limit::{self, Context, Namespace},
        storage::redis::AsyncRedisStorage,
    };

    let storage = AsyncRedisStorage::new(url).await.expect("a connection");
    let limiter = Arc::new(AsyncRateLimiter::new_with_storage(Box::new(storage)));
    let Ok(user) = "user".try_into() else { unreachable!("it is the name of a variable") };
    let threshold = u64::from(limit.threshold);
    limiter.add_limit(limit::Limit::new("abuse", threshold, limit.seconds, Vec::new(), vec![user]));
    let ask = move |caller: String| -> Pending {
        let limiter = Arc::clone(&limiter);
        Box::pin(async move {
            let context = Context::from(HashMap::from([("user".to_owned(), caller)]));
            let namespace = Namespace::from("abuse");
            match limiter.check_rate_limited_and_update(&namespace, &context, 1).await {
                Ok(answer) => Answer::of(!answer.limited),
                Err(_) => Answer::Failed,
            }
        })
    };
    Ready { ask: Box::new(ask), reset: None, service: None }
}
