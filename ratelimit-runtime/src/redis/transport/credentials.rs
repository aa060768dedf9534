//! Logins that the program provides: at each connect, and again before one ends.

use std::{
    error::Error,
    fmt, io,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use redis::{Cmd, RedisResult};
use tokio::{sync::Mutex, task::JoinSet, time::Instant};

/// The longest time that a provider may take.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(10);

/// The shortest time from one login of a connection to the next, whatever the end.
const MIN_RENEWAL: Duration = Duration::from_secs(1);

/// The user that a server has without a login.
const DEFAULT_USER: &str = "default";

/// A user and a password of Redis, and optionally their end: the answer of
/// [`credentials`](crate::LimiterBuilder::credentials).
///
/// `Debug` does not show the password.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::Credentials;
///
/// let token = Credentials::new("app", "token").valid_for(Duration::from_secs(15 * 60));
/// assert!(!format!("{token:?}").contains("token"));
/// ```
#[derive(Clone)]
pub struct Credentials {
    username: Box<str>,
    password: Box<str>,
    end: Option<Instant>,
}

impl Credentials {
    /// Takes a user and a password, without an end. The user of a server that has only a password
    /// is `default`.
    #[must_use]
    pub fn new(username: impl Into<Box<str>>, password: impl Into<Box<str>>) -> Self {
        Self { username: username.into(), password: password.into(), end: None }
    }

    /// Sets the time from now to the end.
    #[must_use]
    pub fn valid_for(self, validity: Duration) -> Self {
        Self { end: Instant::now().checked_add(validity), ..self }
    }

    /// Sets the end, by the system's clock.
    #[must_use]
    pub fn valid_until(self, end: SystemTime) -> Self {
        self.valid_for(end.duration_since(SystemTime::now()).unwrap_or_default())
    }

    /// Returns the login with these parts of a URL, if it has one.
    pub(super) fn in_url(username: Option<&str>, password: Option<&str>) -> Option<Self> {
        Some(Self::new(username.unwrap_or(DEFAULT_USER), password?))
    }

    /// Returns the parts that nobody else may read.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.username_of_acl().into_iter().chain([&*self.password])
    }

    /// Returns the user, unless it is the one that a server without users has too.
    fn username_of_acl(&self) -> Option<&str> {
        Some(&*self.username).filter(|name| *name != DEFAULT_USER)
    }

    /// Returns the time of the next login: before the end by a quarter of the time until then, more
    /// or less, so that connections do not log in together.
    pub(crate) fn renewal(&self) -> Option<Instant> {
        let now = Instant::now();
        let left = self.end?.saturating_duration_since(now);
        Some(now + left.mul_f64(0.7 + fastrand::f64() / 10.0).max(MIN_RENEWAL))
    }

    /// Returns the command that logs a connection in.
    pub(super) fn auth(&self) -> Cmd {
        redis::cmd("AUTH").arg(self.username_of_acl()).arg(&*self.password).take()
    }

    /// Returns the command that logs a connection in and chooses RESP3.
    pub(super) fn hello(&self) -> Cmd {
        redis::cmd("HELLO").arg(3).arg("AUTH").arg(&*self.username).arg(&*self.password).take()
    }
}

/// Does not show the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

type Provided = Result<Credentials, Box<dyn Error + Send + Sync>>;

type Provide = dyn Fn() -> Pin<Box<dyn Future<Output = Provided> + Send>> + Send + Sync;

/// The program's provider, shared by the connections of a limiter.
#[derive(Clone)]
pub(crate) struct CredentialsProvider {
    provide: Arc<Provide>,
    answers: Arc<Mutex<LoginHistory>>,
}

#[derive(Default)]
struct LoginHistory {
    /// The last answer, and the time of its question.
    last: Option<(Instant, Result<Credentials, Arc<str>>)>,
    /// The last credentials.
    good: Option<Credentials>,
}

impl CredentialsProvider {
    pub(crate) fn new<F, E>(provide: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let provide = move || -> Pin<Box<dyn Future<Output = Provided> + Send>> {
            let answer = provide();
            Box::pin(async move { answer.await.map_err(Into::into) })
        };
        Self { provide: Arc::new(provide), answers: Arc::default() }
    }

    /// Returns credentials for a new connection: if the provider fails, the last ones until their
    /// end.
    pub(super) async fn for_connect(&self) -> RedisResult<Credentials> {
        match self.ask().await {
            Ok(credentials) => Ok(credentials),
            Err(why) => {
                let good = self.answers.lock().await.good.clone();
                good.filter(|good| good.end.is_none_or(|end| Instant::now() < end))
                    .ok_or_else(|| failed(&why))
            }
        }
    }

    /// Returns credentials that the provider gives now.
    pub(crate) async fn renewed(&self) -> RedisResult<Credentials> {
        self.ask().await.map_err(|why| failed(&why))
    }

    /// Asks the provider, once for all connections that wait for its answer.
    async fn ask(&self) -> Result<Credentials, Arc<str>> {
        let needed = Instant::now();
        let mut answers = self.answers.lock().await;
        if let Some((_, answer)) = answers.last.as_ref().filter(|(asked, _)| *asked >= needed) {
            return answer.clone();
        }
        let asked = Instant::now();
        let answer = self.answer().await;
        answers.good = answer.clone().ok().or_else(|| answers.good.take());
        let before = answers.last.replace((asked, answer.clone()));
        // The subscriber is called without the lock: it may ask as well.
        drop(answers);
        match &answer {
            Ok(_) => {}
            // Once for each series of failures.
            Err(why) if !matches!(before, Some((_, Err(_)))) => {
                tracing::warn!(error = %why, "credentials provider failed");
            }
            Err(why) => tracing::debug!(error = %why, "credentials provider failed"),
        }
        answer
    }

    /// Runs the provider in a task of its own, which may panic.
    async fn answer(&self) -> Result<Credentials, Arc<str>> {
        let provide = Arc::clone(&self.provide);
        let mut task = JoinSet::new();
        task.spawn(async move { provide().await });
        match tokio::time::timeout(PROVIDER_TIMEOUT, task.join_next()).await {
            Ok(Some(Ok(answer))) => answer.map_err(|error| error.to_string().into()),
            Ok(_) => Err("it panicked".into()),
            Err(_) => Err(format!("no answer within {PROVIDER_TIMEOUT:?}").into()),
        }
    }
}

fn failed(why: &str) -> redis::RedisError {
    io::Error::other(format!("credentials provider: {why}")).into()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tracing::{Event, Metadata, Subscriber, span};

    use super::*;
    use crate::harness::captured_events::listen;

    /// A provider that takes a second for each answer, and the number of its calls.
    fn slow(answer: impl Fn(u32) -> Provided + Send + Sync + 'static) -> CredentialsProvider {
        let (calls, answer) = (AtomicU32::new(0), Arc::new(answer));
        CredentialsProvider::new(move || {
            let (call, answer) = (calls.fetch_add(1, Ordering::Relaxed), Arc::clone(&answer));
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                answer(call)
            }
        })
    }

    fn numbered(call: u32) -> Credentials {
        Credentials::new("app", call.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_wait_share_an_answer_asked_after_they_need_it() {
        let provider = slow(|call| Ok(numbered(call)));
        let mut tasks = JoinSet::new();
        for wait in [0, 500, 500, 500] {
            let provider = provider.clone();
            tasks.spawn(async move {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                provider.renewed().await.unwrap().password.to_string()
            });
        }
        let mut answers = tasks.join_all().await;
        answers.sort();
        assert_eq!(answers, ["0", "1", "1", "1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connect_takes_the_last_credentials_until_they_end_if_the_provider_fails() {
        let provider = slow(|call| match call {
            0 => Ok(numbered(call).valid_for(Duration::from_secs(5))),
            1 => panic!("a provider that panics"),
            _ => Err("no token".into()),
        });
        provider.renewed().await.unwrap();
        let error = provider.renewed().await.unwrap_err();
        assert!(error.to_string().contains("credentials provider: it panicked"), "{error}");
        assert_eq!(&*provider.for_connect().await.unwrap().password, "0");
        tokio::time::sleep(Duration::from_secs(5)).await;
        let error = provider.for_connect().await.unwrap_err();
        assert!(error.to_string().contains("credentials provider: no token"), "{error}");
    }

    /// A subscriber that may ask the provider itself.
    struct Foreign(CredentialsProvider, Arc<AtomicU32>);

    impl Subscriber for Foreign {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.is_event()
                && metadata.target() == "ratelimit_runtime::redis::transport::credentials"
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, _: &Event<'_>) {
            assert!(self.0.answers.try_lock().is_ok(), "locked");
            self.1.fetch_add(1, Ordering::Relaxed);
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscriber_is_called_without_the_lock() {
        let (provider, events) = (slow(|_| Err("no token".into())), Arc::default());
        let _guard = listen(Foreign(provider.clone(), Arc::clone(&events)));
        for failures in 1..=2 {
            provider.renewed().await.unwrap_err();
            assert_eq!(events.load(Ordering::Relaxed), failures);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_without_an_answer_is_given_up() {
        let provider = CredentialsProvider::new(std::future::pending::<Provided>);
        let error = provider.for_connect().await.unwrap_err();
        assert!(error.to_string().contains("no answer within 10s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_is_renewed_before_its_end_but_not_again_at_once() {
        let now = Instant::now();
        let left = |credentials: Credentials| credentials.renewal().map(|at| at - now);
        assert_eq!(left(numbered(0)), None);
        for _ in 0..100 {
            let after = left(numbered(0).valid_for(Duration::from_secs(100))).unwrap();
            assert!((70..=80).contains(&after.as_secs()), "{after:?}");
        }
        for ended in [Duration::ZERO, Duration::from_millis(1)] {
            assert_eq!(left(numbered(0).valid_for(ended)), Some(MIN_RENEWAL));
        }
        assert_eq!(left(numbered(0).valid_until(SystemTime::UNIX_EPOCH)), Some(MIN_RENEWAL));
        assert_eq!(left(numbered(0).valid_for(Duration::MAX)), None);
    }
}
