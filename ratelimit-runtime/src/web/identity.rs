//! Who is calling, as a request tells it.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{address::ClientAddress, refusal::Refusal};
use crate::caller::Caller;

/// How the caller is found in a request of type `R`.
///
/// The frameworks' modules have this type for their requests: `web::tower::Identity` and
/// `web::actix::Identity`.
///
/// A request without an identity is refused, unless [`on_missing`](Self::on_missing) is set. A
/// malformed identity is never a missing one: no other source is asked, and the request is refused,
/// unless [`on_malformed`](Self::on_malformed) is set. No request goes uncounted.
pub struct Identity<R> {
    sources: Vec<Source<R>>,
    missing: OnMissing,
    malformed: Malformed,
    warned: Arc<AtomicBool>,
}

/// The treatment of a request without an identity.
///
/// Refusing is the default, because a shared quota is one that any stranger can use up for all the
/// others. It also shows at the first request that a server does not pass on the peer's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnMissing {
    /// The request is counted for one caller that all such requests share.
    Shared,
    /// The request is refused with [`Refusal::NoIdentity`].
    #[default]
    Reject,
}

/// The treatment of a request whose identity is malformed: its header is repeated, empty, or not
/// UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The request is refused with [`Refusal::MalformedIdentity`].
    #[default]
    Reject,
    /// The request is counted for the one caller that requests without an identity share.
    Shared,
}

/// A function that a user gave, shared by clones.
pub(super) type SharedFn<A, T> = Arc<dyn Fn(&A) -> T + Send + Sync>;

enum Source<R> {
    Address(ClientAddress),
    Header { name: Box<str>, is_plain: bool },
    Custom(SharedFn<R, Option<Caller>>),
}

/// The finding of one source.
enum Found {
    Caller(Caller),
    OnMissing,
    Malformed,
}

impl From<Option<Caller>> for Found {
    fn from(caller: Option<Caller>) -> Self {
        caller.map_or(Self::OnMissing, Self::Caller)
    }
}

/// What an identity reads of a request, whatever its framework.
///
/// Implemented for the requests of the frameworks; there is no need to implement it elsewhere.
pub trait RequestHead {
    /// The address at the other end of the socket.
    fn peer(&self) -> Option<IpAddr>;

    /// The values of all lines of a header, in the order they came; `name` is in lower case.
    fn header_lines(&self, name: &str) -> impl DoubleEndedIterator<Item = &[u8]>;

    /// What `read` finds in the value of type `T` among the request's extensions.
    fn extension<T: Send + Sync + 'static>(
        &self,
        read: impl FnOnce(&T) -> Caller,
    ) -> Option<Caller>;
}

impl<R: RequestHead + 'static> Identity<R> {
    /// The address at the other end of the socket: the client's, if it connects directly.
    #[must_use]
    pub fn peer() -> Self {
        Self::address(ClientAddress::peer())
    }

    /// The client's address, found as `address` says.
    #[must_use]
    pub fn address(address: ClientAddress) -> Self {
        Self::from_source(Source::Address(address))
    }

    /// The value of a header, such as an API key, as its SHA-256. It identifies a caller only once it
    /// has been authenticated: otherwise whoever makes up a value has a quota of its own.
    ///
    /// The value itself reaches neither the store nor a log. [`Caller::digest`] makes the same
    /// caller. A digest does not hide values that can be guessed, such as names.
    ///
    /// A header that is repeated, empty, or not UTF-8 is malformed.
    #[must_use]
    pub fn header(name: &str) -> Self {
        let name = name.to_ascii_lowercase().into();
        Self::from_source(Source::Header { name, is_plain: false })
    }

    /// As [`header`](Self::header), but the value is readable in the store's keys: for names, never
    /// for secrets.
    #[must_use]
    pub fn plain_header(name: &str) -> Self {
        let name = name.to_ascii_lowercase().into();
        Self::from_source(Source::Header { name, is_plain: true })
    }

    /// What an authentication layer further out left in the request's extensions: the text of the
    /// value of type `T`.
    #[must_use]
    pub fn extension<T: fmt::Display + Send + Sync + 'static>() -> Self {
        Self::from_fn(|request: &R| request.extension(|principal: &T| Caller::from(principal)))
    }

    /// What `find` makes of the request.
    ///
    /// ```
    /// # #[cfg(feature = "tower")] {
    /// use ratelimit_runtime::{Caller, web::tower::Identity};
    ///
    /// /// Left by the layer that has authenticated the request.
    /// #[derive(Clone)]
    /// struct Claims { tenant: String, user: u64 }
    ///
    /// let identity = Identity::from_fn(|request: &http::request::Parts| {
    ///     let claims = request.extensions.get::<Claims>()?;
    ///     Some(Caller::from(&claims.tenant).and(claims.user))
    /// });
    /// # }
    /// ```
    ///
    /// Headers are the client's own words, `Host` included: a function that counts by one gives a new
    /// quota for each value.
    pub fn from_fn(find: impl Fn(&R) -> Option<Caller> + Send + Sync + 'static) -> Self {
        Self::from_source(Source::Custom(Arc::new(find)))
    }

    fn from_source(source: Source<R>) -> Self {
        Self {
            sources: vec![source],
            missing: OnMissing::default(),
            malformed: Malformed::default(),
            warned: Arc::default(),
        }
    }

    /// Falls back to `other` where this identity is missing, but not where it is malformed.
    ///
    /// The callers that `other` finds are marked, as by [`Caller::alternative`]: no text in a header
    /// equals one of them.
    ///
    /// ```
    /// # #[cfg(feature = "tower")] {
    /// use ratelimit_runtime::web::tower::Identity;
    ///
    /// let identity = Identity::header("x-api-key").or(Identity::peer());
    /// # }
    /// ```
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.sources.extend(other.sources);
        self
    }

    /// Sets the treatment of requests without an identity; [`OnMissing::Reject`] by default.
    #[must_use]
    pub fn on_missing(mut self, missing: OnMissing) -> Self {
        self.missing = missing;
        self
    }

    /// Sets the treatment of malformed identities; [`Malformed::Reject`] by default.
    #[must_use]
    pub fn on_malformed(mut self, malformed: Malformed) -> Self {
        self.malformed = malformed;
        self
    }

    /// The caller of `request`.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoIdentity`] and [`Refusal::MalformedIdentity`], unless
    /// [`on_missing`](Self::on_missing) or [`on_malformed`](Self::on_malformed) has such requests
    /// share a quota.
    pub fn caller(&self, request: &R) -> Result<Caller, Refusal> {
        for (place, source) in self.sources.iter().enumerate() {
            match source.find(request) {
                Found::Caller(caller) => return Ok((0..place).fold(caller, |it, _| it.marked())),
                Found::Malformed => return self.malformed(),
                Found::OnMissing => {}
            }
        }
        self.missing()
    }

    fn missing(&self) -> Result<Caller, Refusal> {
        let is_first = !self.warned.swap(true, Ordering::Relaxed);
        match self.missing {
            OnMissing::Reject => {
                if is_first {
                    tracing::warn!("a request without an identity was refused, as all such are");
                }
                Err(Refusal::NoIdentity)
            }
            OnMissing::Shared => {
                if is_first {
                    tracing::warn!("a request without an identity: all such share their limits");
                }
                Ok(Caller::shared())
            }
        }
    }

    fn malformed(&self) -> Result<Caller, Refusal> {
        match self.malformed {
            Malformed::Reject => Err(Refusal::MalformedIdentity),
            Malformed::Shared => Ok(Caller::shared()),
        }
    }
}

impl<R: RequestHead> Source<R> {
    fn find(&self, request: &R) -> Found {
        match self {
            Self::Address(address) => {
                let lines = || request.header_lines(address.header_name());
                match address.resolve(request.peer(), lines()) {
                    Some(client) => Found::Caller(client.into()),
                    None if address.reads_header(request.peer()) && lines().next().is_some() => {
                        Found::Malformed
                    }
                    None => Found::OnMissing,
                }
            }
            Self::Header { name, is_plain } => header(request.header_lines(name), *is_plain),
            Self::Custom(find) => find(request).into(),
        }
    }
}

/// The caller that the only line of a header names.
fn header<'a>(mut lines: impl Iterator<Item = &'a [u8]>, is_plain: bool) -> Found {
    let Some(line) = lines.next() else { return Found::OnMissing };
    match str::from_utf8(line).map(str::trim) {
        Ok(text) if !text.is_empty() && lines.next().is_none() => {
            Found::Caller(if is_plain { Caller::from(text) } else { Caller::digest(text) })
        }
        _ => Found::Malformed,
    }
}

impl<R> Clone for Identity<R> {
    fn clone(&self) -> Self {
        Self {
            sources: self.sources.clone(),
            missing: self.missing,
            malformed: self.malformed,
            warned: Arc::clone(&self.warned),
        }
    }
}

impl<R> Clone for Source<R> {
    fn clone(&self) -> Self {
        match self {
            Self::Address(address) => Self::Address(address.clone()),
            Self::Header { name, is_plain } => {
                Self::Header { name: name.clone(), is_plain: *is_plain }
            }
            Self::Custom(find) => Self::Custom(Arc::clone(find)),
        }
    }
}

impl<R> fmt::Debug for Identity<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("missing", &self.missing)
            .field("malformed", &self.malformed)
            .finish_non_exhaustive()
    }
}
