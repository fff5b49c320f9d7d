//! Checks the address in the kubeconfig of a virtual cluster: it must be a Service of the virtual cluster's own
//! namespace. Otherwise the author of the Secret could send the agent to any address that it reaches.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use http::Uri;
use postern_kinds::kubeconfig::Kubeconfig;
use postern_meta::names::{dns1123_label, dns1123_subdomain};
use postern_proxy::UpstreamAddresses;

use super::VirtualClusterRef;

/// The port of a Service that a kubeconfig does not name.
const HTTPS_PORT: u16 = 443;

/// The most bytes of the domain: with a Service and a namespace before it, a name has 253 at most.
const MAX_DOMAIN_BYTES: usize = 253 - "..svc.".len() - 2 * 63;

/// The domain of a cluster's Services, `cluster.local` in most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDomain(Arc<str>);

impl FromStr for ClusterDomain {
    type Err = String;

    /// A domain, which may be written as an absolute name, with a dot at its end.
    ///
    /// # Errors
    /// Why it is no domain.
    fn from_str(text: &str) -> Result<Self, String> {
        let domain = text.strip_suffix('.').unwrap_or(text);
        dns1123_subdomain(domain)?;
        if domain.len() > MAX_DOMAIN_BYTES {
            return Err(format!("it has more than {MAX_DOMAIN_BYTES} characters"));
        }
        Ok(Self(domain.into()))
    }
}

/// The address of a virtual cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The Service, and the path that the kubeconfig has.
    pub(super) url: Uri,
    /// The name that the certificate must have, from the kubeconfig: the trusted authorities stay
    /// the same.
    pub(super) server_name: String,
    pub(super) addresses: UpstreamAddresses,
}

/// The server names something else.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotInNamespace;

impl Address {
    /// The address for a kubeconfig: that of the Service that it names. `localhost` stands for the Service with the
    /// name of the virtual cluster: such a kubeconfig is made for a port that is forwarded there. With
    /// `allow_local`, it is dialled as it is.
    ///
    /// A Service is dialled as `SERVICE.NAMESPACE.svc.` and the domain of the cluster. Further
    /// labels in the kubeconfig are ignored, so no other domain can take its place. The name is
    /// absolute, so none of the resolver's own domains can, either.
    ///
    /// # Errors
    /// When the kubeconfig names no Service of this namespace.
    pub(super) fn of(
        kubeconfig: &Kubeconfig,
        place: &VirtualClusterRef,
        allow_local: bool,
        domain: &ClusterDomain,
    ) -> Result<Self, NotInNamespace> {
        let named: Uri = kubeconfig.server.parse().map_err(|_| NotInNamespace)?;
        let host = named.host().ok_or(NotInNamespace)?.to_ascii_lowercase();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let server_name = kubeconfig.tls_server_name.clone().unwrap_or_else(|| host.to_owned());
        let addresses =
            if allow_local { UpstreamAddresses::any() } else { UpstreamAddresses::default() };
        let (service, port) = match (is_loopback(host), allow_local) {
            (true, true) => return Ok(Self { url: named, server_name, addresses }),
            (true, false) => (place.name.as_str(), HTTPS_PORT),
            (false, _) => {
                let service = service_of(host, &place.namespace).ok_or(NotInNamespace)?;
                (service, named.port_u16().unwrap_or(HTTPS_PORT))
            }
        };
        dns1123_label(service).map_err(|_| NotInNamespace)?;
        let (namespace, domain, path) = (&place.namespace, &domain.0, named.path());
        let url = format!("https://{service}.{namespace}.svc.{domain}.:{port}{path}");
        let url = url.parse().map_err(|_| NotInNamespace)?;
        Ok(Self { url, server_name, addresses })
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// The Service that a host names in a namespace: `SERVICE.NAMESPACE`, and perhaps `.svc` and the domain of
/// the cluster.
fn service_of<'a>(host: &'a str, namespace: &str) -> Option<&'a str> {
    let mut labels = host.split('.');
    let (service, in_namespace, rest) = (labels.next()?, labels.next()?, labels.next());
    let is_service = in_namespace == namespace && rest.is_none_or(|label| label == "svc");
    is_service.then_some(service)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(server: &str, allow_local: bool) -> Result<(String, String), NotInNamespace> {
        let kubeconfig = Kubeconfig {
            server: server.to_owned(),
            tls_server_name: None,
            ca_pem: None,
            is_insecure: false,
            token: None,
            client_certificate: None,
        };
        let place = VirtualClusterRef { namespace: "ns".to_owned(), name: "v".to_owned() };
        let domain = "cluster.test".parse().unwrap();
        let address = Address::of(&kubeconfig, &place, allow_local, &domain)?;
        assert_eq!(address.addresses == UpstreamAddresses::any(), allow_local);
        Ok((address.url.to_string(), address.server_name))
    }

    #[test]
    fn a_service_of_the_namespace_is_dialled_and_the_certificate_is_as_the_kubeconfig_says() {
        for (server, url, name) in [
            ("https://v.ns", "https://v.ns.svc.cluster.test.:443/", "v.ns"),
            ("https://V.ns.svc:8443", "https://v.ns.svc.cluster.test.:8443/", "v.ns.svc"),
            (
                "https://lb.ns.svc.cluster.local",
                "https://lb.ns.svc.cluster.test.:443/",
                "lb.ns.svc.cluster.local",
            ),
            // No other domain takes the place of the Service.
            (
                "https://v.ns.svc.evil.example/k",
                "https://v.ns.svc.cluster.test.:443/k",
                "v.ns.svc.evil.example",
            ),
            // The kubeconfig of a virtual cluster is made for a forwarded port, unless it is told otherwise.
            ("https://localhost:8443", "https://v.ns.svc.cluster.test.:443/", "localhost"),
            ("https://127.0.0.1:8443/k", "https://v.ns.svc.cluster.test.:443/k", "127.0.0.1"),
            ("https://[::1]:8443", "https://v.ns.svc.cluster.test.:443/", "::1"),
            (
                "https://[::ffff:127.0.0.1]",
                "https://v.ns.svc.cluster.test.:443/",
                "::ffff:127.0.0.1",
            ),
        ] {
            assert_eq!(of(server, false), Ok((url.to_owned(), name.to_owned())), "{server}");
        }
        let at_home = of("https://127.0.0.1:8443/k", true).unwrap();
        assert_eq!(at_home, ("https://127.0.0.1:8443/k".to_owned(), "127.0.0.1".to_owned()));
    }

    #[test]
    fn a_domain_is_a_dns_name_with_room_for_a_service_before_it() {
        let longest = ["a"; 61].join(".");
        for (text, domain) in [
            ("cluster.local", "cluster.local"),
            ("cluster.local.", "cluster.local"),
            ("k8s", "k8s"),
            (&longest, &longest),
        ] {
            assert_eq!(text.parse(), Ok(ClusterDomain(domain.into())), "{text}");
        }
        let too_long = ["a"; 62].join(".");
        for text in [
            "",
            ".",
            "cluster..local",
            "cluster.local..",
            ".local",
            "Cluster.local",
            "a_b",
            "a:1",
            "a/b",
            "-a",
            &too_long,
        ] {
            text.parse::<ClusterDomain>().unwrap_err();
        }
    }

    #[test]
    fn whatever_is_not_in_the_namespace_is_refused() {
        for server in [
            "https://v",
            "https://v.other",
            "https://v.other.svc",
            "https://v.ns.evil.example",
            "https://ns.svc",
            "https://evil.example",
            "https://evil.example:443/v.ns.svc",
            "https://kubernetes.default.svc",
            "https://10.0.0.1",
            "https://169.254.169.254/latest",
            "https://[fe80::1]",
            "https://0.0.0.0",
            "https://.ns.svc",
            "https://v_x.ns.svc",
            "not a URL",
        ] {
            for allow_local in [false, true] {
                assert_eq!(of(server, allow_local), Err(NotInNamespace), "{server}");
            }
        }
    }
}
