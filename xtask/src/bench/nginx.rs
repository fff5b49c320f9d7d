//! nginx as a peer. As a server of static files, it shows how fast a server that does nothing else
//! can send bytes over TLS. In front of a Postern server, it shows the same of a proxy.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use super::Bench;
use super::server::{Server, directory, free_port, spawn};
use crate::fetch;

/// The server that nginx is in front of.
pub(crate) struct Proxied {
    /// Scheme, host and port.
    pub(crate) address: String,
    /// The CA that has signed its certificate.
    pub(crate) ca: PathBuf,
    /// Headers that are set on each request.
    pub(crate) headers: Vec<(&'static str, String)>,
}

const READY_TIMEOUT: Duration = Duration::from_secs(10);

impl Bench {
    /// Starts nginx with one worker, no access log, and files of these lengths in bytes, under
    /// `/LENGTH`.
    pub(crate) fn start_nginx(&self, lengths: &[u64]) -> Result<Server> {
        fetch::nginx()?;
        let dir = directory()?;
        let files = dir.path().join("files");
        std::fs::create_dir(&files)?;
        for length in lengths {
            std::fs::write(files.join(length.to_string()), vec![b'x'; usize::try_from(*length)?])?;
        }
        let root = format!("open_file_cache max=100; root {};", files.display());
        let mut server = self.spawn_nginx(dir, &root, "")?;
        let path = lengths.first().map(|length| format!("/{length}")).unwrap_or_default();
        self.wait_until_ok(&mut server, &path, READY_TIMEOUT)?;
        server.find_helpers()?;
        Ok(server)
    }

    /// Starts nginx with one worker and no access log in front of another server: TLS on both sides, and
    /// connections to that server that stay open.
    pub(crate) fn start_proxying_nginx(&self, proxied: &Proxied) -> Result<Server> {
        fetch::nginx()?;
        let mut location = format!(
            "location / {{
      proxy_pass https://cluster;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_ssl_trusted_certificate {};
      proxy_ssl_verify on;
      proxy_ssl_name localhost;
      proxy_ssl_protocols TLSv1.3;
",
            proxied.ca.display()
        );
        for (name, value) in &proxied.headers {
            writeln!(location, "      proxy_set_header {name} \"{value}\";")?;
        }
        location.push_str("    }");
        let host = proxied.address.trim_start_matches("https://");
        let upstream = format!(
            "upstream cluster {{ server {host}; keepalive 64; keepalive_requests 1000000000; }}"
        );
        self.spawn_nginx(directory()?, &location, &upstream)
    }

    fn spawn_nginx(&self, dir: TempDir, locations: &str, upstream: &str) -> Result<Server> {
        self.make_certificate(dir.path())?;
        let port = free_port()?;
        let text = configuration(dir.path(), port, locations, upstream);
        std::fs::write(dir.path().join("nginx.conf"), text)?;
        let mut command = Command::new("nginx");
        command.arg("-e").arg(dir.path().join("error.log")).arg("-c");
        let child = spawn(command.arg(dir.path().join("nginx.conf")), &dir)?;
        let mut server = Server::new("nginx", child, dir);
        let ca = server.path("ca.pem").to_string_lossy().into_owned();
        let base = format!("https://127.0.0.1:{port}");
        server.access = ["--base", &base, "--ca", &ca].map(str::to_owned).to_vec();
        Ok(server)
    }

    /// Makes a certificate of the kind that our own server has.
    pub(crate) fn make_certificate(&self, dir: &std::path::Path) -> Result<()> {
        let dir = dir.to_string_lossy();
        self.run_load(&["certificate", "--dir", &dir].map(str::to_owned))?;
        Ok(())
    }
}

fn configuration(dir: &std::path::Path, port: u16, locations: &str, upstream: &str) -> String {
    let dir = dir.display();
    // As root, the worker would change to another user, which cannot read this directory.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    format!(
        "daemon off;
{user}
worker_processes 1;
pid {dir}/pid;
error_log {dir}/error.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  keepalive_timeout 600;
  client_body_temp_path {dir};
  proxy_temp_path {dir};
  fastcgi_temp_path {dir};
  uwsgi_temp_path {dir};
  scgi_temp_path {dir};
  {upstream}
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {dir}/ca.pem;
    ssl_certificate_key {dir}/key.pem;
    ssl_protocols TLSv1.3;
    {locations}
  }}
}}
"
    )
}
