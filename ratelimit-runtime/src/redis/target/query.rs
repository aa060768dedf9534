//! The parameters of a URL.

use std::borrow::Cow;

use url::form_urlencoded;

use super::{
    credentials::{ESCAPES, may_be_secret},
    scheme::{Deployment, Scheme},
};
use crate::error::ConnectFault;

/// The parameter with the name of connections, as in the URLs of redis-py and go-redis.
pub(super) const CLIENT_NAME: &str = "client_name";

pub(super) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Reads the parameters; a URL of this scheme must have no others.
    pub(super) fn parse(text: &'a str, scheme: Scheme<'_>) -> Result<Self, ConnectFault> {
        let parameters: Vec<_> = form_urlencoded::parse(text.as_bytes()).collect();
        let known: &[&str] = match scheme.deployment {
            _ if scheme.is_unix() => &["protocol", CLIENT_NAME, "db", "user", "pass"],
            Deployment::Sentinel => {
                &["protocol", CLIENT_NAME, "sentinel_username", "sentinel_password"]
            }
            Deployment::Single | Deployment::Cluster => &["protocol", CLIENT_NAME],
        };
        let unknown = parameters.iter().find(|(name, _)| !known.contains(&name.as_ref()));
        let Some((name, _)) = unknown else { return Ok(Self(parameters)) };
        let known = known.join("`, `");
        let mut names = parameters.iter().map(|(name, _)| name.as_ref());
        Err(ConnectFault::Malformed(if text.contains('@') || may_be_secret(name, &mut names) {
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
