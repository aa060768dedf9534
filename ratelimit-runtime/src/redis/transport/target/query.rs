//! The parameters of a URL.

use std::borrow::Cow;

use url::form_urlencoded;

use super::parts::{Deployment, ESCAPES, UrlParts};
use crate::error::Fault;

/// The parameter with the name of connections, as in the URLs of redis-py and go-redis.
pub(super) const CLIENT_NAME: &str = "client_name";

pub(super) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Reads the parameters of a URL; there must be no others than its deployment has.
    pub(super) fn parse(url: &UrlParts<'a>) -> Result<Self, Fault> {
        let parameters: Vec<_> = form_urlencoded::parse(url.query.as_bytes()).collect();
        let known: &[&str] = match url.deployment {
            _ if url.is_unix() => &["protocol", CLIENT_NAME, "db", "user", "pass"],
            Deployment::Sentinel => {
                &["protocol", CLIENT_NAME, "sentinel_username", "sentinel_password"]
            }
            Deployment::Single | Deployment::Cluster => &["protocol", CLIENT_NAME],
        };
        let unknown = parameters.iter().find(|(name, _)| !known.contains(&name.as_ref()));
        let Some((name, _)) = unknown else { return Ok(Self(parameters)) };
        let known = known.join("`, `");
        let mut names = parameters.iter().map(|(name, _)| name.as_ref());
        Err(Fault::malformed_url(if url.query.contains('@') || may_be_secret(name, &mut names) {
            format!("unknown parameter; allowed are `{known}`, and {ESCAPES}")
        } else {
            format!("unknown parameter `{name}`; allowed are `{known}`")
        }))
    }

    pub(super) fn value(&self, name: &str) -> Option<String> {
        let found = self.0.iter().find(|(it, _)| it == name);
        found.map(|(_, value)| value.clone().into_owned())
    }

    /// Returns the parameters of a single server's URL, encoded.
    pub(super) fn of_one_server(&self) -> String {
        let is_own = |name: &str| name != CLIENT_NAME && !name.starts_with("sentinel_");
        let own = self.0.iter().filter(|(name, _)| is_own(name));
        form_urlencoded::Serializer::new(String::new()).extend_pairs(own).finish()
    }
}

/// Parameters that are a login, or a part of one.
const LOGIN: [&str; 4] = ["user", "pass", "sentinel_username", "sentinel_password"];

/// Returns `true` if a parameter of this name may be the remainder of a password with a `&` or a
/// `?`, among parameters of these names.
fn may_be_secret<'a>(name: &str, mut names: impl Iterator<Item = &'a str>) -> bool {
    !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        || names.any(|name| LOGIN.contains(&name))
}
