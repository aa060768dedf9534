//! The host names that the page is served under.
//!
//! A site can point its own name at an address in this network (DNS rebinding). Its scripts are
//! then of the page's origin and can read it, and a hook that decides by the peer's address admits
//! them. They cannot choose the `Host` that the browser sends.

use std::net::IpAddr;

use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header, uri::Authority};

use crate::ActionError;

/// Names that are served besides those of this machine.
#[derive(Debug, Default)]
pub(super) struct Hosts(Vec<Box<str>>);

impl Hosts {
    pub(super) fn add(&mut self, names: impl IntoIterator<Item = impl AsRef<str>>) {
        self.0.extend(names.into_iter().map(|name| name.as_ref().trim_end_matches('.').into()));
    }

    /// Returns an error if the request is for a name that is not served, or from a page of another
    /// origin.
    pub(super) fn check(&self, parts: &Parts) -> Result<(), ActionError> {
        let asked: Option<Vec<Authority>> = asked(parts).collect();
        let asked =
            asked.filter(|asked| !asked.is_empty() && asked.iter().all(|it| self.serves(it)));
        let Some(asked) = asked else {
            let why = "the page is not served under this host name; add it by `hosts` of the page's builder";
            return Err(ActionError::new(StatusCode::MISDIRECTED_REQUEST, why));
        };
        if parts.headers.get_all(header::ORIGIN).iter().all(|origin| {
            let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
            let origin = origin.and_then(|(_, authority)| authority.parse().ok());
            origin.is_some_and(|origin| asked.contains(&origin) || self.names(&origin))
        }) {
            return Ok(());
        }
        Err(ActionError::forbidden("the request comes from another site"))
    }

    fn serves(&self, asked: &Authority) -> bool {
        if asked.as_str().contains('@') {
            return false;
        }
        let host = host(asked).to_ascii_lowercase();
        // A rebound name is no address.
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        address.unwrap_or(&host).parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.names(asked)
    }

    fn names(&self, asked: &Authority) -> bool {
        self.0.iter().any(|name| name.eq_ignore_ascii_case(host(asked)))
    }
}

fn host(authority: &Authority) -> &str {
    authority.host().trim_end_matches('.')
}

/// Returns the hosts that the request is for; `None` for one that cannot be parsed.
fn asked(parts: &Parts) -> impl Iterator<Item = Option<Authority>> {
    let fields = |headers: &HeaderMap| {
        let lines = headers.get_all(header::HOST).iter();
        lines.map(|host| host.to_str().ok()?.parse().ok()).collect::<Vec<_>>()
    };
    // HTTP/2 has it here.
    let target = parts.uri.authority().cloned();
    fields(&parts.headers).into_iter().chain(target.map(Some))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn status(names: &[&str], uri: &str, fields: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::get(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut hosts = Hosts::default();
        hosts.add(names);
        hosts.check(&parts).err().map(|error| error.0.as_u16())
    }

    #[test]
    fn a_name_is_served_if_it_leads_here_everywhere_or_was_named() {
        for host in ["localhost", "LOCALHOST.:80", "a.localhost", "[::1]:8080", "10.0.0.7:1"] {
            assert_eq!(status(&[], "/", &[("host", host)]), None, "{host}");
        }
        for host in ["ops.example", "localhost.example", "127.1", "", "a@localhost:x", "[::1"] {
            assert_eq!(status(&[], "/", &[("host", host)]), Some(421), "{host}");
        }
        let names = ["Ops.example.", "backend"];
        for host in ["ops.example", "OPS.EXAMPLE:8443", "backend"] {
            assert_eq!(status(&names, "/", &[("host", host)]), None, "{host}");
        }
        assert_eq!(status(&names, "/", &[("host", "a.ops.example")]), Some(421));
        assert_eq!(status(&[], "/", &[]), Some(421));
        // Every value has to be right.
        assert_eq!(status(&[], "http://localhost/", &[]), None);
        assert_eq!(status(&[], "http://evil.example/", &[("host", "localhost")]), Some(421));
        assert_eq!(status(&[], "http://localhost/", &[("host", "evil.example")]), Some(421));
        assert_eq!(status(&[], "/", &[("host", "localhost"), ("host", "evil")]), Some(421));
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let origin = |origin| status(&["ops"], "/", &[("host", "localhost:1"), ("origin", origin)]);
        assert_eq!(origin("http://localhost:1"), None);
        assert_eq!(origin("https://LOCALHOST:1"), None);
        // A proxy in front uses a name of its own.
        assert_eq!(origin("https://ops"), None);
        for other in ["http://localhost:2", "http://127.0.0.1:1", "https://evil", "null", "", "x"] {
            assert_eq!(origin(other), Some(403), "{other}");
        }
    }
}
