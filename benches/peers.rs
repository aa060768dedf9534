//! `cargo bench -p ratelimit-benches --bench peers [--features limitador]`
//!
//! Decisions per second of 64 tasks on one Redis server: the annotated function, and other crates
//! that decide on Redis. All have 10 000 callers and the same limits: 400 calls in 5 seconds, which
//! admits all, and 2 calls in an hour or longer, which refuses all but the first.
//!
//! They do not all do the same work. `trypema` counts in buckets of 10 ms, `limitador` in fixed
//! windows and inexactly by its own account. `actix-limitation` counts in fixed windows over a
//! connection for each call. Ours is the exact sliding window, once with the default deny cache and
//! once without it.
//!
//! The release 0.14 of `limitador` compiles with Redis only if `RocksDB` is compiled as well, which
//! takes clang and some minutes: hence the feature.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use ratelimit_benches::{
    figures::{figure, ratios, report, report_ratio, spread},
    load::{self, Load},
    on_redis::{call, limiter},
    rounds::rounds,
    server::{Result, Server},
};
use tokio::runtime::Builder;
use trypema::{BucketSize, RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize};

const LENGTH: Duration = Duration::from_millis(500);
const TASKS: u32 = 64;

type Answer = Pin<Box<dyn Future<Output = bool> + Send>>;
type Peer = (&'static str, Arc<dyn Fn(u32) -> Answer + Send + Sync>);

fn main() -> Result<()> {
    let server = Server::start(&["--maxclients", "20000"])?;
    let url = server.url();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for is_admitted in [true, false] {
        let peers = runtime.block_on(async {
            let mut peers = vec![ours(&url, is_admitted, 16_384, "ours").await?];
            if !is_admitted {
                peers.push(ours(&url, false, 0, "ours, always asking").await?);
            }
            peers.push(trypema(&url, is_admitted).await?);
            peers.push(actix_limitation(&url, is_admitted)?);
            #[cfg(feature = "limitador")]
            peers.push(limitador(&url, is_admitted).await?);
            Result::Ok(peers)
        })?;
        let mut loads: Vec<Vec<Load>> = vec![Vec::new(); peers.len()];
        for round in 0..=rounds(7) {
            for ((_, peer), loads) in peers.iter().zip(&mut loads) {
                let peer = Arc::clone(peer);
                let load = runtime.block_on(load::closed(TASKS, LENGTH, move |user| peer(user)));
                // The first round fills the server.
                if round > 0 {
                    loads.push(load);
                }
            }
        }
        print(is_admitted, &peers, &loads);
    }
    Ok(())
}

fn print(is_admitted: bool, peers: &[Peer], rounds: &[Vec<Load>]) {
    let what = if is_admitted { "admitted" } else { "refused" };
    println!("\n{what}, {TASKS} tasks");
    println!(
        "{:20}{:>28}{:>8}{:>8}{:>9}{:>10}",
        "", "decisions/s", "p50", "p99", "CPU us", "admitted"
    );
    let per_second = |of: &[Load]| -> Vec<f64> { of.iter().map(|it| it.per_second).collect() };
    for ((name, _), of) in peers.iter().zip(rounds) {
        let median = |figure: fn(&Load) -> f64| spread(of.iter().map(figure).collect())[1];
        print!("{name:20}{:>28}", figure(per_second(of), 0));
        print!("{:8.0}{:8.0}", median(|it| it.p50), median(|it| it.p99));
        println!("{:9.1}{:10.3}", median(|it| it.cpu), median(|it| it.admitted));
        report(&format!("{what}, {name}, {TASKS} tasks: decisions/s"), per_second(of), "-");
    }
    let is_ours = |peer: &Peer| peer.0.starts_with("ours");
    for (own, own_rounds) in peers.iter().zip(rounds).filter(|(peer, _)| is_ours(peer)) {
        for (other, of) in peers.iter().zip(rounds).filter(|(peer, _)| !is_ours(peer)) {
            let ratios = ratios(&per_second(own_rounds), &per_second(of));
            report_ratio(
                &format!("{what}, {}: decisions/s to {}", own.0, other.0),
                ratios,
                "at least 2",
            );
        }
    }
}

async fn ours(url: &str, is_admitted: bool, deny_cache: usize, name: &'static str) -> Result<Peer> {
    let limiter = limiter(url, deny_cache).await?;
    Ok((name, Arc::new(move |user| Box::pin(call(limiter, is_admitted, user)))))
}

async fn trypema(url: &str, is_admitted: bool) -> Result<Peer> {
    let connection = redis::Client::open(url)?.get_connection_manager().await?;
    let (window, rate) = if is_admitted {
        (WindowSize::seconds_or_panic(5), RateLimit::per_second_or_panic(80.))
    } else {
        (WindowSize::hours_or_panic(1), RateLimit::per_hour_or_panic(2.))
    };
    let provider = trypema::redis::RedisRateLimiterProvider::builder(connection)
        .window_size(window)
        .bucket_size(BucketSize::milliseconds_or_panic(10))
        .build()?;
    let peer = move |user: u32| -> Answer {
        let provider = Arc::clone(&provider);
        Box::pin(async move {
            let key = format!("{is_admitted}_{user}");
            let key = trypema::redis::RedisKey::try_from(key).expect("a key without a colon");
            let answer = provider.absolute().inc(&key, &rate, 1).await;
            matches!(answer.expect("trypema decides"), RateLimitDecision::Allowed)
        })
    };
    Ok(("trypema", Arc::new(peer)))
}

fn actix_limitation(url: &str, is_admitted: bool) -> Result<Peer> {
    let (limit, period) = if is_admitted { (400, 5) } else { (2, 31_622_400) };
    let limiter = actix_limitation::Limiter::builder(url)
        .limit(limit)
        .period(Duration::from_secs(period))
        .build()?;
    let limiter = Arc::new(limiter);
    let peer = move |user: u32| -> Answer {
        let limiter = Arc::clone(&limiter);
        Box::pin(async move {
            match limiter.count(format!("actix:{is_admitted}:{user}")).await {
                Ok(_) => true,
                Err(actix_limitation::Error::LimitExceeded(_)) => false,
                Err(error) => panic!("{error}"),
            }
        })
    };
    Ok(("actix-limitation", Arc::new(peer)))
}

#[cfg(feature = "limitador")]
async fn limitador(url: &str, is_admitted: bool) -> Result<Peer> {
    use std::collections::HashMap;

    use limitador::{
        AsyncRateLimiter,
        limit::{Context, Limit, Namespace},
        storage::redis::AsyncRedisStorage,
    };

    let storage = AsyncRedisStorage::new(url).await?;
    let limiter = Arc::new(AsyncRateLimiter::new_with_storage(Box::new(storage)));
    let (limit, period) = if is_admitted { (400, 5) } else { (2, 31_622_400) };
    let name = format!("limitador_{is_admitted}");
    let user = "user".try_into().map_err(|_| "limitador does not parse a name")?;
    limiter.add_limit(Limit::new(name.as_str(), limit, period, Vec::new(), vec![user]));
    let namespace = Namespace::from(name.as_str());
    let peer = move |user: u32| -> Answer {
        let (limiter, namespace) = (Arc::clone(&limiter), namespace.clone());
        Box::pin(async move {
            let values = HashMap::from([("user".to_owned(), user.to_string())]);
            let context = Context::from(values);
            let answer = limiter.check_rate_limited_and_update(&namespace, &context, 1).await;
            !answer.expect("limitador decides").limited
        })
    };
    Ok(("limitador", Arc::new(peer)))
}
