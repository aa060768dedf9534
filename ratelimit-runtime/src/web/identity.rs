//! Who is calling, as a request tells it.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{address::ClientAddress, problem::Refusal};
use crate::caller::Caller;

/// How the caller is found in a request of type `R`.
///
/// The frameworks' modules have this type for their requests: `web::tower::Identity` and
/// `web::actix::Identity`.
///
/// A request that does not say who is calling is counted together with all others that do not
/// ([`Missing::Shared`]), which is logged at `warn` once, or is refused ([`Missing::Reject`]); it
/// never goes uncounted.
pub struct Identity<R> {
    sources: Vec<Source<R>>,
    missing: Missing,
    warned: Arc<AtomicBool>,
}

/// What becomes of a request that does not say who is calling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missing {
    /// It is counted for one caller that all such requests share.
    #[default]
    Shared,
    /// It is refused with [`Refusal::NoIdentity`].
    Reject,
}

/// A function that a user gave, shared by clones.
pub(super) type SharedFn<A, T> = Arc<dyn Fn(&A) -> T + Send + Sync>;

enum Source<R> {
    Address(ClientAddress),
    Header(Box<str>),
    Custom(SharedFn<R, Option<Caller>>),
}

/// What an identity reads of a request, whatever its framework.
///
/// Implemented for the requests of the frameworks; there is no need to implement it elsewhere.
pub trait RequestView {
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

impl<R: RequestView + 'static> Identity<R> {
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

    /// The value of a header, such as an API key. It says who is calling only once it has been
    /// authenticated: otherwise whoever makes up a value has a quota of its own.
    ///
    /// The value stands in the store's keys: of a secret, count an id or a digest instead, with
    /// [`from_fn`](Self::from_fn).
    ///
    /// A header that is empty, not UTF-8, or given more than once counts as missing.
    #[must_use]
    pub fn header(name: &str) -> Self {
        Self::from_source(Source::Header(name.to_ascii_lowercase().into()))
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
    /// /// A tenant, from its host name.
    /// let tenant = Identity::from_fn(|request: &http::request::Parts| {
    ///     let host = request.headers.get("host")?.to_str().ok()?;
    ///     Some(Caller::from(host.split('.').next()?))
    /// });
    /// # }
    /// ```
    pub fn from_fn(find: impl Fn(&R) -> Option<Caller> + Send + Sync + 'static) -> Self {
        Self::from_source(Source::Custom(Arc::new(find)))
    }

    fn from_source(source: Source<R>) -> Self {
        Self { sources: vec![source], missing: Missing::default(), warned: Arc::default() }
    }

    /// Where this identity is missing, `other` says who is calling.
    ///
    /// The callers that `other` finds are marked in the key with a part `or`: nobody becomes one of
    /// them by what a header says.
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

    /// What becomes of a request that does not say who is calling; [`Missing::Shared`] by default.
    #[must_use]
    pub fn on_missing(mut self, missing: Missing) -> Self {
        self.missing = missing;
        self
    }

    /// The caller of `request`.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoIdentity`], if that is what [`on_missing`](Self::on_missing) says.
    pub fn caller(&self, request: &R) -> Result<Caller, Refusal> {
        for (place, source) in self.sources.iter().enumerate() {
            if let Some(found) = source.find(request) {
                let mut caller = Caller::without_parts();
                for _ in 0..place {
                    caller.push("or");
                }
                caller.append(&found);
                return Ok(caller);
            }
        }
        match self.missing {
            Missing::Reject => Err(Refusal::NoIdentity),
            Missing::Shared => {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "a request does not say who is calling: all such requests share their limits"
                    );
                }
                Ok(Caller::shared())
            }
        }
    }
}

impl<R: RequestView> Source<R> {
    fn find(&self, request: &R) -> Option<Caller> {
        match self {
            Self::Address(address) => {
                let lines = request.header_lines(address.header_name());
                address.resolve(request.peer(), lines).map(Caller::from)
            }
            Self::Header(name) => {
                let mut lines = request.header_lines(name);
                let value = lines.next().filter(|_| lines.next().is_none())?;
                let text = str::from_utf8(value).ok().map(str::trim)?;
                (!text.is_empty()).then(|| Caller::from(text))
            }
            Self::Custom(find) => find(request),
        }
    }
}

impl<R> Clone for Identity<R> {
    fn clone(&self) -> Self {
        Self {
            sources: self.sources.clone(),
            missing: self.missing,
            warned: Arc::clone(&self.warned),
        }
    }
}

impl<R> Clone for Source<R> {
    fn clone(&self) -> Self {
        match self {
            Self::Address(address) => Self::Address(address.clone()),
            Self::Header(name) => Self::Header(name.clone()),
            Self::Custom(find) => Self::Custom(Arc::clone(find)),
        }
    }
}

impl<R> fmt::Debug for Identity<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("missing", &self.missing).finish_non_exhaustive()
    }
}
