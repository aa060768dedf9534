//! The caller of a request: extractors, and the treatment of missing and malformed identities.

use std::{
    borrow::Cow,
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    address::ClientAddress,
    refusal::Refusal,
    single_value::{MalformedHeader, single_value},
};
use crate::caller::Caller;

/// The extraction of the caller from requests of type `R`.
///
/// The frameworks' modules have aliases for their requests: `web::tower::Identity` and
/// `web::actix::Identity`.
///
/// A request without an identity is refused, unless [`on_missing`](Self::on_missing) is
/// [`OnMissing::Shared`]. A malformed identity is never a missing one: no alternative is tried. The
/// request is refused, unless [`on_malformed`](Self::on_malformed) is [`OnMalformed::Shared`].
/// Every request is counted or refused.
#[must_use = "an identity does nothing until it is passed to a layer"]
pub struct Identity<R> {
    /// The first, and its alternatives in their order.
    extractors: Vec<Extractor<R>>,
    on_missing: OnMissing,
    on_malformed: OnMalformed,
    warned: Arc<AtomicBool>,
}

/// The treatment of a request without an identity.
///
/// [`Reject`](Self::Reject) is the default: any stranger could use up a shared quota. The first
/// refused request also shows that a server does not pass on the peer's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnMissing {
    /// The request is counted for one caller that all such requests share.
    Shared,
    /// The request is refused with [`Refusal::NoIdentity`]: 400.
    #[default]
    Reject,
    /// The request is refused with [`Refusal::Unauthorized`]: 401, and this challenge in
    /// `WWW-Authenticate`, such as `Bearer` or `ApiKey realm="orders"`.
    Unauthorized(&'static str),
}

impl OnMissing {
    /// Returns the caller of a request without an identity.
    pub(super) fn caller(self) -> Result<Caller, Refusal> {
        match self {
            Self::Shared => Ok(Caller::shared()),
            Self::Reject => Err(Refusal::NoIdentity),
            Self::Unauthorized(challenge) => Err(Refusal::Unauthorized { challenge }),
        }
    }
}

/// The treatment of a request whose identity is malformed: its header is repeated, empty, not
/// UTF-8, or no address where it should be one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnMalformed {
    /// The request is refused with [`Refusal::MalformedIdentity`].
    #[default]
    Reject,
    /// The request is counted for the one caller that requests without an identity share.
    Shared,
}

/// A function of the user, shared by clones.
pub(super) type SharedFn<A, T> = Arc<dyn Fn(&A) -> T + Send + Sync>;

/// One way to find a caller: a function, whose error is a malformed identity.
type Extractor<R> = SharedFn<R, Result<Option<Caller>, MalformedHeader>>;

/// The head of a request, in any framework. Sealed: implemented for the requests of the frameworks.
pub trait RequestHead: Sealed {
    /// Returns the method, in upper case as a rule.
    fn method(&self) -> &str;

    /// Returns the path, without the query.
    fn path(&self) -> &str;

    /// Returns the pattern of the route that the router has matched, such as `/users/{id}`: axum's
    /// `MatchedPath`, actix-web's `match_pattern`. Outside axum's router there is none.
    fn route(&self) -> Option<Cow<'_, str>>;

    /// Returns the address at the other end of the socket.
    fn peer(&self) -> Option<IpAddr>;

    /// Returns the values of all lines of a header, in their order. `name` is in lower case.
    fn header_lines(&self, name: &str) -> impl DoubleEndedIterator<Item = &[u8]>;

    /// Returns the caller that `read` makes of the extension of type `T`, if there is one.
    fn extension<T: Send + Sync + 'static>(
        &self,
        read: impl FnOnce(&T) -> Caller,
    ) -> Option<Caller>;
}

/// Keeps traits to the types of the frameworks, so that they can grow.
#[allow(unnameable_types, reason = "that is what seals the trait")]
pub trait Sealed {}

impl<R: RequestHead + 'static> Identity<R> {
    /// Identifies callers by the address at the other end of the socket: the client's, if it
    /// connects directly.
    pub fn peer() -> Self {
        Self::address(ClientAddress::peer())
    }

    /// Identifies callers by the client's address.
    pub fn address(address: ClientAddress) -> Self {
        Self::from_extractor(move |request: &R| {
            let lines = request.header_lines(address.header_name());
            Ok(address.find(request.peer(), lines)?.map(Caller::from))
        })
    }

    /// Identifies callers by the SHA-256 of a header, such as an API key.
    ///
    /// The value must have been authenticated. Otherwise every invented value has a quota of its
    /// own.
    ///
    /// The value itself reaches neither the store nor a log. [`Caller::digest`] returns the same
    /// caller. A digest does not hide values that can be guessed, such as names.
    ///
    /// A header that is repeated, empty, or not UTF-8 is malformed.
    pub fn header(name: &str) -> Self {
        Self::of_header(name, |value| Caller::digest(value))
    }

    /// Identifies callers as [`header`](Self::header) does, but with the value readable in the
    /// store's keys: for names, never for secrets.
    pub fn plain_header(name: &str) -> Self {
        Self::of_header(name, |value| Caller::from(value))
    }

    fn of_header(name: &str, caller: fn(&str) -> Caller) -> Self {
        let name = name.to_ascii_lowercase();
        Self::from_extractor(move |request: &R| {
            Ok(single_value(request.header_lines(&name))?.map(caller))
        })
    }

    /// Identifies callers by the text that the `Display` of an extension of type `T` writes, such
    /// as an id. An authentication layer further out has inserted it.
    pub fn extension<T: fmt::Display + Send + Sync + 'static>() -> Self {
        Self::from_fn(|request: &R| request.extension(|principal: &T| Caller::from(principal)))
    }

    /// Identifies callers by a function. `None` is a missing identity.
    ///
    /// ```
    /// # #[cfg(feature = "tower")] {
    /// use ratelimit_runtime::{Caller, web::tower::Identity};
    ///
    /// /// Inserted by the layer that has authenticated the request.
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
    /// Clients choose their headers, `Host` included: a function that counts by one grants a new
    /// quota for each value.
    pub fn from_fn(find: impl Fn(&R) -> Option<Caller> + Send + Sync + 'static) -> Self {
        Self::from_extractor(move |request| Ok(find(request)))
    }

    fn from_extractor(
        extract: impl Fn(&R) -> Result<Option<Caller>, MalformedHeader> + Send + Sync + 'static,
    ) -> Self {
        Self {
            extractors: vec![Arc::new(extract)],
            on_missing: OnMissing::default(),
            on_malformed: OnMalformed::default(),
            warned: Arc::default(),
        }
    }

    /// Falls back to `other` if this identity is missing, but not if it is malformed.
    ///
    /// The callers of `other` are marked, as by [`Caller::fallback`]: no text in a header equals
    /// one of them.
    ///
    /// ```
    /// # #[cfg(feature = "tower")] {
    /// use ratelimit_runtime::web::tower::Identity;
    ///
    /// let identity = Identity::header("x-api-key").or(Identity::peer());
    /// # }
    /// ```
    pub fn or(mut self, other: Self) -> Self {
        self.extractors.extend(other.extractors);
        self
    }

    /// Sets the treatment of requests without an identity; [`OnMissing::Reject`] by default.
    pub fn on_missing(self, on_missing: OnMissing) -> Self {
        Self { on_missing, ..self }
    }

    /// Refuses requests without an identity with 401 and this challenge in `WWW-Authenticate`: the
    /// scheme by which clients send their key. The same as [`OnMissing::Unauthorized`].
    ///
    /// ```
    /// # #[cfg(feature = "tower")] {
    /// use ratelimit_runtime::web::tower::Identity;
    ///
    /// let identity = Identity::header("x-api-key").unauthorized("ApiKey");
    /// # }
    /// ```
    pub fn unauthorized(self, challenge: &'static str) -> Self {
        self.on_missing(OnMissing::Unauthorized(challenge))
    }

    /// Sets the treatment of malformed identities; [`OnMalformed::Reject`] by default.
    pub fn on_malformed(self, on_malformed: OnMalformed) -> Self {
        Self { on_malformed, ..self }
    }

    /// Returns the caller of `request`.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoIdentity`] or [`Refusal::Unauthorized`] unless [`on_missing`](Self::on_missing)
    /// is [`OnMissing::Shared`], and [`Refusal::MalformedIdentity`] unless
    /// [`on_malformed`](Self::on_malformed) is [`OnMalformed::Shared`].
    pub fn caller(&self, request: &R) -> Result<Caller, Refusal> {
        for (index, extract) in self.extractors.iter().enumerate() {
            match (extract(request), self.on_malformed) {
                (Ok(Some(caller)), _) => {
                    return Ok((0..index).fold(caller, |caller, _| Caller::fallback(caller)));
                }
                (Ok(None), _) => {}
                (Err(MalformedHeader), OnMalformed::Reject) => {
                    return Err(Refusal::MalformedIdentity);
                }
                (Err(MalformedHeader), OnMalformed::Shared) => return Ok(Caller::shared()),
            }
        }
        self.missing()
    }

    fn missing(&self) -> Result<Caller, Refusal> {
        let caller = self.on_missing.caller();
        if !self.warned.swap(true, Ordering::Relaxed) {
            let treated = if caller.is_ok() { "counted for the shared caller" } else { "refused" };
            tracing::warn!("request without an identity {treated}; further ones are not logged");
        }
        caller
    }
}

impl<R> Clone for Identity<R> {
    fn clone(&self) -> Self {
        Self { extractors: self.extractors.clone(), warned: Arc::clone(&self.warned), ..*self }
    }
}

impl<R> fmt::Debug for Identity<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("on_missing", &self.on_missing)
            .field("on_malformed", &self.on_malformed)
            .finish_non_exhaustive()
    }
}
