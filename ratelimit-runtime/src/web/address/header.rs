//! The headers in which proxies record their clients.

use std::{iter::Rev, net::IpAddr};

use super::{
    super::single_value::{MalformedHeader, single_value},
    node::{node, viewer_address},
};

/// Bytes of forwarding headers that are parsed, from the right end: enough for long proxy chains,
/// and a bound on work that clients can cause.
const MAX_BYTES: usize = 8 * 1024;

/// The header in which proxies record their clients. Only one is read: a proxy that writes one of
/// them forwards the others as the client sent them.
///
/// An address may have a port, and a link-local one a zone. Neither is part of the client's
/// address.
///
/// # Lists
///
/// [`XForwardedFor`](Self::XForwardedFor) and [`Forwarded`](Self::Forwarded) are lists, to which
/// each proxy appends its peer. All lines of the header are one list. A repeated header is normal.
///
/// # Single addresses
///
/// [`Single`](Self::Single) and [`CloudFrontViewerAddress`](Self::CloudFrontViewerAddress) have one
/// address. The proxy must replace what the client sent. From a trusted peer the header is:
///
/// - the client, if it is sent once and is an address,
/// - malformed, if it is repeated, empty, not UTF-8, or no address,
/// - a missing identity, if it is not sent.
///
/// [`Identity`](super::super::Identity) refuses malformed and missing ones with 400 by default. A
/// request that a proxy makes itself, such as a health check, has no such header: `skip` its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ForwardingHeader {
    /// `X-Forwarded-For: 203.0.113.9, 10.0.0.2`
    #[default]
    #[doc(alias = "x-forwarded-for")]
    XForwardedFor,
    /// `Forwarded: for="[2001:db8::9]:4711";proto=https` (RFC 7239)
    #[doc(alias = "rfc7239")]
    Forwarded,
    /// A header of this name with one address, in any case of letters:
    ///
    /// | name | written by |
    /// |---|---|
    /// | `cf-connecting-ip` | Cloudflare; see [`ClientAddress::cloudflare`](super::ClientAddress::cloudflare) |
    /// | `fly-client-ip` | Fly.io |
    /// | `true-client-ip` | Akamai, and Cloudflare where it is enabled |
    /// | `x-envoy-external-address` | Envoy, Istio |
    /// | `x-real-ip` | nginx with `proxy_set_header X-Real-IP $remote_addr` |
    #[doc(alias("cf-connecting-ip", "fly-client-ip", "true-client-ip"))]
    #[doc(alias("x-envoy-external-address", "x-real-ip"))]
    Single(&'static str),
    /// `CloudFront-Viewer-Address: 2001:db8::9:4711`, always with a port and without brackets; see
    /// [`ClientAddress::cloudfront`](super::ClientAddress::cloudfront).
    CloudFrontViewerAddress,
}

impl ForwardingHeader {
    /// Returns the name of the header: in lower case, or as [`Single`](Self::Single) has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::Single(name) => name,
            Self::CloudFrontViewerAddress => "cloudfront-viewer-address",
        }
    }

    /// Returns `true` for a header to which each proxy appends.
    pub(super) const fn is_list(self) -> bool {
        matches!(self, Self::XForwardedFor | Self::Forwarded)
    }

    /// Returns the address in a header that is no list; `None` if the header is missing.
    ///
    /// # Errors
    ///
    /// [`MalformedHeader`] if it is anything but one address.
    pub(super) fn single_address<'a>(
        self,
        lines: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Option<IpAddr>, MalformedHeader> {
        let Some(text) = single_value(lines)? else { return Ok(None) };
        let address = match self {
            Self::CloudFrontViewerAddress => viewer_address(text),
            _ => node(text),
        };
        address.map(Some).ok_or(MalformedHeader)
    }
}

/// The entries of a list in all its lines, right to left.
pub(super) struct Entries<'a, I> {
    lines: Rev<I>,
    /// The unread left end of the current line.
    rest: Option<&'a [u8]>,
    /// The bytes that may still be parsed.
    budget: usize,
    header: ForwardingHeader,
}

impl<'a, I: DoubleEndedIterator<Item = &'a [u8]>> Entries<'a, I> {
    pub(super) fn new(header: ForwardingHeader, lines: I) -> Self {
        Self { lines: lines.rev(), rest: None, budget: MAX_BYTES, header }
    }

    /// Returns the next address; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`MalformedHeader`] at an entry that is no address, and once [`MAX_BYTES`] are used up.
    pub(super) fn next_address(&mut self) -> Result<Option<IpAddr>, MalformedHeader> {
        let Some(line) = self.rest.take().or_else(|| self.lines.next()) else { return Ok(None) };
        self.address_at_end(line).map(Some).ok_or(MalformedHeader)
    }

    fn address_at_end(&mut self, line: &'a [u8]) -> Option<IpAddr> {
        let start = line.len().saturating_sub(self.budget);
        let separator = match self.header {
            ForwardingHeader::Forwarded => last_unquoted(&line[start..], b','),
            _ => line[start..].iter().rposition(|&byte| byte == b','),
        };
        let entry = match separator {
            Some(at) => {
                self.rest = Some(&line[..start + at]);
                &line[start + at + 1..]
            }
            // The first entry of the line.
            None if start == 0 => line,
            // The entry begins before the bytes that are read.
            None => return None,
        };
        self.budget = self.budget.saturating_sub(entry.len() + 1);
        let entry = str::from_utf8(entry).ok()?;
        match self.header {
            ForwardingHeader::Forwarded => forwarded_for(entry).and_then(node),
            _ => node(entry.trim()),
        }
    }
}

/// Returns the position of the last `separator` outside quotes. The search starts at the right: a
/// client's text further left cannot open a quote around an entry that a proxy appended.
fn last_unquoted(text: &[u8], separator: u8) -> Option<usize> {
    let mut quoted = false;
    for (at, &byte) in text.iter().enumerate().rev() {
        if byte == b'"' {
            let backslashes = text[..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
            quoted ^= backslashes % 2 == 0;
        } else if byte == separator && !quoted {
            return Some(at);
        }
    }
    None
}

/// Returns the node of the only `for` in one element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<&str> {
    let mut found = None;
    let mut rest = Some(element);
    while let Some(pairs) = rest {
        let (left, pair) = match last_unquoted(pairs.as_bytes(), b';') {
            Some(at) => (Some(&pairs[..at]), &pairs[at + 1..]),
            None => (None, pairs),
        };
        rest = left;
        if let Some((name, value)) = pair.split_once('=')
            && name.trim().eq_ignore_ascii_case("for")
            && found.replace(value.trim()).is_some()
        {
            return None;
        }
    }
    let value = found?;
    match value.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"'),
        None => Some(value),
    }
}
