//! Where an upstream is.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};

use crate::dial::display_address;
use crate::upstream_config::UpstreamError;

/// Where an upstream is, as its URL says.
pub(crate) struct Origin {
    pub(crate) is_plain: bool,
    /// Without brackets, in lower case, and without the dot that ends an absolute name.
    pub(crate) host: String,
    /// The name that is looked up: the same with the dot, if there is one. Then no search domain of the resolver
    /// is tried.
    pub(crate) dialled: String,
    pub(crate) port: u16,
    /// `host:port`, for messages.
    pub(crate) address: Arc<str>,
    pub(crate) host_header: HeaderValue,
    /// Begins with a slash and does not end with one, or is empty.
    pub(crate) prefix: String,
}

impl Origin {
    pub(crate) fn of(url: &Uri, allow_plain: bool) -> Result<Self, UpstreamError> {
        let printed = || match (url.scheme_str(), url.host()) {
            (Some(scheme), Some(host)) => format!("{scheme}://{host}{}", url.path()),
            _ => "the URL".to_owned(),
        };
        let wrong = |reason| UpstreamError::Url { url: printed(), reason };
        let is_plain = match url.scheme_str() {
            Some("https") => false,
            Some("http") if allow_plain => true,
            Some("http") => return Err(wrong("plain HTTP is not allowed: give an https URL")),
            _ => return Err(wrong("give a URL that begins with https://")),
        };
        let authority = url.authority().ok_or_else(|| wrong("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("it has a user: give credentials apart from the URL"));
        }
        if url.query().is_some() {
            return Err(wrong("it has a query: only a path may follow the host"));
        }
        let prefix = url.path().trim_end_matches('/');
        if prefix.split('/').skip(1).any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(wrong("its path has empty segments or dots"));
        }
        let named = authority.host().trim_start_matches('[').trim_end_matches(']');
        let host = named.strip_suffix('.').unwrap_or(named);
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        if authority.port().is_some() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(wrong("its port is not between 1 and 65535"));
        }
        // The dot is for the resolver alone: certificates and servers know the name without.
        let host_header = authority.as_str().replacen(named, host, 1);
        let (host, dialled) = (host.to_ascii_lowercase(), named.to_ascii_lowercase());
        let port = authority.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
        Ok(Self {
            is_plain,
            address: display_address(&host, port).into(),
            host,
            dialled,
            port,
            host_header: HeaderValue::from_str(&host_header)
                .map_err(|_| wrong("its host cannot be in a header"))?,
            prefix: prefix.to_owned(),
        })
    }

    /// The URI for the upstream: the path below its prefix.
    pub(crate) fn uri(&self, path_and_query: &PathAndQuery) -> Result<Uri, http::Error> {
        if self.prefix.is_empty() {
            return Ok(Uri::from(path_and_query.clone()));
        }
        Uri::builder().path_and_query(format!("{}{path_and_query}", self.prefix)).build()
    }
}
