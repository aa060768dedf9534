//! The token that tells the page's own requests from those that another site has a browser send.
//!
//! It is in a cookie, which other sites cannot read or set, and in the page, whose script sends it
//! in a header field: a request has to bring both, and equal. No process has to remember it.

use std::{fmt::Write, hint::black_box};

use ::axum::http::request::Parts;
use http::{HeaderMap, StatusCode, header};

use super::Failed;

const COOKIE: &str = "ratelimit-token";
const FIELD: &str = "x-ratelimit-token";
const BYTES: usize = 32;

/// The token that the request's cookie has, or a new one.
pub(super) fn of(headers: &HeaderMap) -> Result<String, Failed> {
    match cookies(headers).next() {
        // Other tabs go on with theirs.
        Some(token) => Ok(token.to_owned()),
        None => random(),
    }
}

fn random() -> Result<String, Failed> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::warn!(%error, "the system has no random numbers for a token");
        Failed::new(StatusCode::INTERNAL_SERVER_ERROR, "no token could be made")
    })?;
    Ok(bytes.iter().fold(String::new(), |mut token, byte| {
        let _ = write!(token, "{byte:02x}");
        token
    }))
}

/// The value of `Set-Cookie`. Without a `Path` the cookie is for the page's folder as the browser
/// knows it, also behind a proxy that maps the path to another.
pub(super) fn cookie(token: &str, parts: &Parts) -> String {
    let secure = if came_by_https(parts) { "; Secure" } else { "" };
    format!("{COOKIE}={token}; HttpOnly; SameSite=Strict{secure}")
}

/// A sender that lies about this only harms itself.
fn came_by_https(parts: &Parts) -> bool {
    let says = |name: &str, word: &str| {
        let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value.to_ascii_lowercase().contains(word))
    };
    parts.uri.scheme_str() == Some("https")
        || says("x-forwarded-proto", "https")
        || says("forwarded", "proto=https")
        || says("forwarded", "proto=\"https\"")
}

/// Whether an action is one that the page sends.
pub(super) fn check(parts: &Parts) -> Result<(), Failed> {
    let headers = &parts.headers;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let media = text(header::CONTENT_TYPE.as_str()).and_then(|value| value.split(';').next());
    if !media.is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json")) {
        return Err(Failed::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "an action is JSON"));
    }
    let is_own = match (headers.get("sec-fetch-site"), headers.get(header::ORIGIN)) {
        (Some(site), _) => site == "same-origin",
        // Browsers leave the former out where there is no TLS.
        (None, Some(_)) => is_own_origin(parts),
        // No browser.
        (None, None) => true,
    };
    if !is_own {
        return Err(Failed::new(StatusCode::FORBIDDEN, "the request comes from another site"));
    }
    let sent = text(FIELD).unwrap_or_default();
    if cookies(headers).any(|token| is_equal(token, sent)) {
        return Ok(());
    }
    Err(Failed::new(
        StatusCode::FORBIDDEN,
        "the request does not have the token of the page; load the page again",
    ))
}

/// Whether the origin is the host that was asked, as the browser or a proxy says.
fn is_own_origin(parts: &Parts) -> bool {
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let origin = text("origin").and_then(|origin| origin.split_once("://"));
    let asked = [
        text("host"),
        text("x-forwarded-host"),
        parts.uri.authority().map(http::uri::Authority::as_str),
    ];
    origin.is_some_and(|(_, host)| {
        asked.into_iter().flatten().any(|asked| asked.eq_ignore_ascii_case(host))
    })
}

/// The well-formed tokens in the request's cookies.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| line.split(';'))
        .filter_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))
        .filter(|token| token.len() == 2 * BYTES && token.bytes().all(|it| it.is_ascii_hexdigit()))
}

/// In a time that does not tell how much of it is.
fn is_equal(token: &str, sent: &str) -> bool {
    let pairs = token.bytes().zip(sent.bytes());
    let differs = pairs.fold(0, |differs, (one, other)| black_box(differs | (one ^ other)));
    token.len() == sent.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use ::axum::http::Request;

    use super::*;

    fn status(fields: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::post("/reset");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        check(&parts).err().map(|Failed(status, _)| status.as_u16())
    }

    #[test]
    fn a_request_needs_the_token_twice_and_no_other_site() {
        let token = "5a".repeat(BYTES);
        let cookie = format!("{COOKIE}={token}");
        let several = format!("session=1; {COOKIE}={}; {COOKIE}={token}", "5b".repeat(BYTES));
        let json = ("content-type", "application/json");
        let sent = (FIELD, token.as_str());
        let with = |more: &[(&'static str, &'static str)]| {
            let mut fields = vec![json, sent, ("cookie", &cookie)];
            fields.extend(more);
            status(&fields)
        };
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("sec-fetch-site", "same-origin")]), None);
        assert_eq!(with(&[("host", "ops:8080"), ("origin", "http://ops:8080")]), None);
        assert_eq!(
            with(&[("host", "a"), ("x-forwarded-host", "ops"), ("origin", "https://ops")]),
            None
        );
        assert_eq!(with(&[("sec-fetch-site", "cross-site")]), Some(403));
        assert_eq!(with(&[("sec-fetch-site", "same-site")]), Some(403));
        assert_eq!(with(&[("host", "ops"), ("origin", "https://evil.example")]), Some(403));
        assert_eq!(with(&[("host", "ops"), ("origin", "null")]), Some(403));
        assert_eq!(status(&[json, sent, ("cookie", &several)]), None);
        assert_eq!(status(&[json, sent]), Some(403));
        assert_eq!(status(&[json, ("cookie", &cookie)]), Some(403));
        assert_eq!(status(&[json, (FIELD, &token[2..]), ("cookie", &cookie)]), Some(403));
        assert_eq!(status(&[json, (FIELD, ""), ("cookie", "ratelimit-token=")]), Some(403));
        assert_eq!(status(&[sent, ("cookie", &cookie)]), Some(415));
        assert_eq!(status(&[("content-type", "text/plain"), sent, ("cookie", &cookie)]), Some(415));
    }

    #[test]
    fn tokens_are_random_and_kept() {
        let none = HeaderMap::new();
        let (one, other) = (of(&none).ok().unwrap(), of(&none).ok().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), 2 * BYTES);
        let mut headers = HeaderMap::new();
        headers.insert("cookie", format!("a=b; {COOKIE}={one}").parse().unwrap());
        assert_eq!(of(&headers).ok(), Some(one.clone()));
        headers.insert("cookie", format!("{COOKIE}=\"><script>").parse().unwrap());
        assert_ne!(of(&headers).ok(), Some(one));
    }
}
