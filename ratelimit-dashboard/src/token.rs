//! The token that distinguishes the page's own requests from those that another site makes a
//! browser send.
//!
//! A session is random, in a cookie that scripts cannot read. Its token is the session's HMAC under
//! a secret of the process. The page contains the token, and its script sends it in a header. A
//! site that plants a cookie in a browser does not know its token.

use std::fmt::Write;

use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use hmac::{Hmac, KeyInit, Mac};
use once_cell::sync::OnceCell;
use sha2::{Digest, Sha256};

use crate::ActionError;

const COOKIE: &str = "ratelimit-session";
const HEADER: &str = "x-ratelimit-token";
const BYTES: usize = 32;

/// The secret of tokens.
#[derive(Default)]
pub(super) struct Secret(OnceCell<[u8; BYTES]>);

impl Secret {
    /// Returns a secret that is the same in all processes with the same text.
    pub(super) fn shared(text: &str) -> Self {
        Self(OnceCell::with_value(Sha256::digest(text).into()))
    }

    /// Returns the token of a session.
    pub(super) fn token(&self, session: &str) -> Result<String, ActionError> {
        let key = self.0.get_or_try_init(random)?;
        Ok(hex(&code(key, session.as_bytes()).finalize().into_bytes()))
    }

    /// Returns `true` if `sent` is the token of a session, in a time that does not depend on the
    /// first difference.
    fn is_token(&self, session: &str, sent: &str) -> Result<bool, ActionError> {
        let key = self.0.get_or_try_init(random)?;
        let sent = unhex(sent).unwrap_or_default();
        Ok(code(key, session.as_bytes()).verify_slice(&sent).is_ok())
    }

    /// Returns an error unless the page has sent this action.
    pub(super) fn check(&self, parts: &Parts) -> Result<(), ActionError> {
        let headers = &parts.headers;
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let media = text(header::CONTENT_TYPE.as_str()).and_then(|value| value.split(';').next());
        if !media.is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json")) {
            return Err(ActionError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "an action is JSON"));
        }
        // Browsers omit it without TLS; the origin is checked then.
        if headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin") {
            return Err(ActionError::forbidden("the request comes from another site"));
        }
        let sent = text(HEADER).unwrap_or_default();
        for session in sessions(headers) {
            if self.is_token(session, sent)? {
                return Ok(());
            }
        }
        Err(ActionError::forbidden(
            "the request does not have the token of the page; load the page again",
        ))
    }
}

/// Returns the HMAC-SHA-256 of a message.
fn code(key: &[u8; BYTES], message: &[u8]) -> Hmac<Sha256> {
    // A key that is shorter than a block ends in zeros.
    let mut block = [0; 64];
    block[..BYTES].copy_from_slice(key);
    Hmac::new(&block.into()).chain_update(message)
}

/// Returns the session in the request's cookies.
pub(super) fn session(headers: &HeaderMap) -> Option<&str> {
    sessions(headers).next()
}

pub(super) fn new_session() -> Result<String, ActionError> {
    random().map(|bytes| hex(&bytes))
}

fn random() -> Result<[u8; BYTES], ActionError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::warn!(%error, "the system has no random numbers for a token");
        ActionError::new(StatusCode::INTERNAL_SERVER_ERROR, "no token could be made")
    })?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Returns the value of `Set-Cookie`. Without a `Path`, the cookie is for the page's folder as the
/// browser sees it, also behind a proxy that maps the path to another.
pub(super) fn cookie(session: &str, parts: &Parts) -> String {
    let secure = if came_by_https(parts) { "; Secure" } else { "" };
    format!("{COOKIE}={session}; HttpOnly; SameSite=Strict{secure}")
}

/// A sender that forges this only harms itself.
fn came_by_https(parts: &Parts) -> bool {
    let has = |name: &str, word: &str| {
        let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value.to_ascii_lowercase().contains(word))
    };
    parts.uri.scheme_str() == Some("https")
        || has("x-forwarded-proto", "https")
        || has("forwarded", "proto=https")
        || has("forwarded", "proto=\"https\"")
}

/// Returns the well-formed sessions in the request's cookies.
fn sessions(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(';'))
        .filter_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))
        .filter(|text| text.len() == 2 * BYTES && text.bytes().all(|it| it.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn status(secret: &Secret, fields: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::post("/reset");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        secret.check(&parts).err().map(|error| error.0.as_u16())
    }

    #[test]
    fn a_request_needs_the_token_of_its_session_and_no_other_site() {
        let secret = Secret::default();
        let session = "5a".repeat(BYTES);
        let token = secret.token(&session).ok().unwrap();
        let cookie = format!("{COOKIE}={session}");
        let several = format!("session=1; {COOKIE}={}; {COOKIE}={session}", "5b".repeat(BYTES));
        let json = ("content-type", "application/json");
        let sent = (HEADER, token.as_str());
        let with = |more: &[(&'static str, &'static str)]| {
            let mut fields = vec![json, sent, ("cookie", &cookie)];
            fields.extend(more);
            status(&secret, &fields)
        };
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("sec-fetch-site", "same-origin")]), None);
        assert_eq!(with(&[("sec-fetch-site", "cross-site")]), Some(403));
        assert_eq!(with(&[("sec-fetch-site", "same-site")]), Some(403));
        let check = |fields: &[(&str, &str)]| status(&secret, fields);
        assert_eq!(check(&[json, sent, ("cookie", &several)]), None);
        assert_eq!(check(&[json, sent]), Some(403));
        assert_eq!(check(&[json, ("cookie", &cookie)]), Some(403));
        assert_eq!(check(&[json, (HEADER, &session), ("cookie", &cookie)]), Some(403));
        assert_eq!(check(&[json, (HEADER, &token[2..]), ("cookie", &cookie)]), Some(403));
        assert_eq!(check(&[json, (HEADER, ""), ("cookie", "ratelimit-session=")]), Some(403));
        assert_eq!(check(&[sent, ("cookie", &cookie)]), Some(415));
        assert_eq!(check(&[("content-type", "text/plain"), sent, ("cookie", &cookie)]), Some(415));
        // Another process accepts it if it has the same secret.
        assert_eq!(status(&Secret::default(), &[json, sent, ("cookie", &cookie)]), Some(403));
        let (one, other) = (Secret::shared("secret"), Secret::shared("secret"));
        assert_eq!(one.token(&session).ok(), other.token(&session).ok());
        assert_ne!(one.token(&session).ok(), Secret::shared("other").token(&session).ok());
    }

    #[test]
    fn the_code_is_that_of_the_standard() {
        // RFC 4231, test case 1; shorter keys end in zeros.
        let mut key = [0; BYTES];
        key[..20].fill(0x0b);
        assert_eq!(
            hex(&code(&key, b"Hi There").finalize().into_bytes()),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
    }

    #[test]
    fn sessions_are_random_and_kept() {
        let (one, other) = (new_session().ok().unwrap(), new_session().ok().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), 2 * BYTES);
        let mut headers = HeaderMap::new();
        assert_eq!(session(&headers), None);
        headers.insert("cookie", format!("a=b; {COOKIE}={one}").parse().unwrap());
        assert_eq!(session(&headers), Some(one.as_str()));
        headers.insert("cookie", format!("{COOKIE}=\"><script>").parse().unwrap());
        assert_eq!(session(&headers), None);
    }
}
