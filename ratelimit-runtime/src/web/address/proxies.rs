//! The trusted proxies: networks that the program names, or that a followed file lists.

use std::{error::Error, fmt, net::IpAddr, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use ipnet::{IpNet, Ipv4Net};

use crate::{
    error::OneLine,
    follow::{UnreadableFile, follow_file},
};

/// The addresses of trusted proxies: given by the program, or read from files that are followed.
///
/// Every host in these networks is trusted to name its client. List the proxies' own addresses or
/// their subnet, and not a private network that other services share.
///
/// A network is an address, or one in CIDR notation, without a zone.
///
/// ```
/// use ratelimit_runtime::web::{ClientAddress, TrustedProxies};
///
/// let proxies = TrustedProxies::new(["10.0.0.7", "2001:db8:1::/64"])?;
/// let client = ClientAddress::behind(proxies);
/// # Ok::<_, ratelimit_runtime::web::InvalidNetwork>(())
/// ```
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    given: Arc<Networks>,
    files: Arc<[Arc<FileNetworks>]>,
}

/// The networks in a followed file.
type FileNetworks = ArcSwap<Networks>;

/// Networks in ascending order, none of which contains another.
#[derive(Debug, Default)]
pub(super) struct Networks(Box<[IpNet]>);

impl TrustedProxies {
    /// Trusts proxies in these networks.
    ///
    /// # Errors
    ///
    /// [`InvalidNetwork`] with the first text that is neither an address nor a network, or a
    /// network of all addresses.
    pub fn new<N: AsRef<str>>(
        networks: impl IntoIterator<Item = N>,
    ) -> Result<Self, InvalidNetwork> {
        let networks: Result<_, _> =
            networks.into_iter().map(|text| network(text.as_ref())).collect();
        Ok(Self { given: Networks::new(networks?).into(), files: Arc::default() })
    }

    /// Trusts proxies in the networks that a file lists, and watches the file.
    ///
    /// Each line is one address or network. A `#` starts a comment. The lists that Cloudflare
    /// publishes have this form.
    ///
    /// ```text
    /// # www.cloudflare.com/ips-v4
    /// 173.245.48.0/20
    /// 103.21.244.0/22
    /// ```
    ///
    /// A change takes effect within a second, as a whole. A file without a network, an invalid one
    /// and an unreadable one are ignored: the networks before stay in effect. Each fault is logged
    /// at `warn` once until the file is valid again.
    ///
    /// A change counts once the file reads the same twice, 200 ms apart. To replace the file at
    /// once, write another one and rename it.
    ///
    /// The file is a regular one of at most 1 MiB. It is followed until the last clone of this
    /// value, and of what was made of it, is dropped, or the tokio runtime ends in which this was
    /// called.
    ///
    /// ```no_run
    /// use ratelimit_runtime::web::{ClientAddress, TrustedProxies};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let edge = TrustedProxies::follow_file("/etc/my-service/cloudflare-networks")?;
    /// let client = ClientAddress::cloudflare(edge);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ProxiesFileError`] if the file cannot be read, has an invalid line, or lists no network.
    /// It is not followed then.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn follow_file(path: impl Into<PathBuf>) -> Result<Self, ProxiesFileError> {
        let path = path.into();
        let file = Arc::new(FileNetworks::default());
        let refused = "trusted proxies refused; previous ones stay in effect";
        let origin = path.clone();
        let apply = move |file: &Arc<FileNetworks>, text: &str| {
            let unreadable = |why| UnreadableFile { path: origin.clone(), why };
            let networks = Networks::parse(text).map_err(unreadable)?;
            let path = OneLine(origin.display());
            tracing::info!(%path, networks = networks.0.len(), "trusted proxies read");
            file.store(Arc::new(networks));
            Ok::<_, ProxiesFileError>(())
        };
        follow_file(path, &file, refused, apply, |_, _| {})?;
        Ok(Self { given: Arc::default(), files: Arc::new([file]) })
    }

    /// Also trusts the proxies of `other`: a load balancer in front of the service, and a file with
    /// the networks of a content delivery network in front of it.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        let given = self.given.0.iter().chain(&other.given.0).copied().collect();
        let files = self.files.iter().chain(&*other.files).map(Arc::clone).collect();
        Self { given: Networks::new(given).into(), files }
    }

    /// Returns `true` for the address of a trusted proxy, in canonical form.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let in_file = |file: &Arc<FileNetworks>| file.load().contains(address);
        self.given.contains(address) || self.files.iter().any(in_file)
    }
}

impl Networks {
    fn new(mut networks: Vec<IpNet>) -> Self {
        // A network comes directly before those that it contains.
        networks.sort_unstable();
        networks.dedup_by(|next, previous| previous.contains(&*next));
        Self(networks.into())
    }

    /// Parses a file with a network on each line.
    ///
    /// # Errors
    ///
    /// The fault, with the line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut networks = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let named = line.split('#').next().unwrap_or_default().trim();
            if !named.is_empty() {
                let at_line = |error| format!("line {}: {error}", index + 1);
                networks.push(network(named).map_err(at_line)?);
            }
        }
        if networks.is_empty() {
            return Err("lists no network; write one on each line".to_owned());
        }
        Ok(Self::new(networks))
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let after = self.0.partition_point(|network| network.network() <= address);
        self.0[..after].last().is_some_and(|network| network.contains(&address))
    }
}

/// Parses an address, or a network in CIDR notation.
pub(super) fn network(text: &str) -> Result<IpNet, InvalidNetwork> {
    let parsed = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network: IpNet = parsed.map_err(|_| InvalidNetwork(text.to_owned()))?;
    // Peers are compared in canonical form, so a mapped network has to have it too.
    let mapped = match network {
        IpNet::V6(mapped) if mapped.prefix_len() >= 96 => mapped
            .addr()
            .to_ipv4_mapped()
            .and_then(|address| Ipv4Net::new(address, mapped.prefix_len() - 96).ok()),
        _ => None,
    };
    let network = mapped.map_or(network, IpNet::V4).trunc();
    if network.prefix_len() == 0 { Err(InvalidNetwork(text.to_owned())) } else { Ok(network) }
}

/// A text that is neither an address nor a network, or a network of all addresses: each client
/// would choose its address then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNetwork(String);

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = if self.0.parse::<IpNet>().is_ok() {
            "trusts every client to name its own address: list the networks of your proxies"
        } else {
            "is neither an address nor a network in CIDR notation"
        };
        write!(f, "`{}` {fault}, such as 10.0.0.0/28", OneLine(&self.0))
    }
}

impl Error for InvalidNetwork {}

/// The error of a file with the networks of [trusted proxies](TrustedProxies::follow_file).
///
/// The message names the path, the line and the fault.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", OneLine(.0.path.display()), OneLine(&.0.why))]
pub struct ProxiesFileError(UnreadableFile);

impl From<UnreadableFile> for ProxiesFileError {
    fn from(file: UnreadableFile) -> Self {
        Self(file)
    }
}

/// The message: it is what a `main` that returns this error prints.
impl fmt::Debug for ProxiesFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
