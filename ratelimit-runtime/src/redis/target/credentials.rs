//! The login in a URL, and the checks that keep it out of messages.

use super::{
    Parts,
    scheme::{Deployment, Scheme},
};
use crate::error::ConnectFault;

/// The fix for most logins that make a URL unreadable.
pub(super) const ESCAPES: &str = "special characters in a user name or password are percent-encoded, such as `@` \
     as %40, `/` as %2F, `?` as %3F, `#` as %23";

/// Parameters that are a login, or a part of one.
const PARAMETERS: [&str; 4] = ["user", "pass", "sentinel_username", "sentinel_password"];

/// Refuses a URL in which an unescaped character ends the login early. Its remainder would be read
/// as a path, a query or a fragment, and might be quoted in a message.
pub(super) fn refuse_cut_login(parts: &Parts<'_>, scheme: Scheme<'_>) -> Result<(), ConnectFault> {
    let allows_at = scheme.is_unix() || scheme.deployment == Deployment::Sentinel;
    let is_in_query = parts.query.contains('@') && !allows_at;
    if parts.has_hash || parts.path.contains('@') || is_in_query {
        return Err(ConnectFault::malformed(ESCAPES));
    }
    Ok(())
}

/// Cuts the login, with its `@`, from the hosts.
pub(super) fn split(authority: &str) -> (&str, &str) {
    authority.split_at(authority.rfind('@').map_or(0, |at| at + 1))
}

/// Returns `true` if a parameter of this name may be the remainder of a password with a `&` or a
/// `?`, among parameters of these names.
pub(super) fn may_be_secret<'a>(name: &str, mut names: impl Iterator<Item = &'a str>) -> bool {
    !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        || names.any(|name| PARAMETERS.contains(&name))
}
