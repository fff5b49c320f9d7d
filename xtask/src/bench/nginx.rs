//! nginx, serving static files: how fast bytes can be sent over TLS by a server that does nothing
//! else with them.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::server::{Server, directory, free_port, spawn};
use crate::fetch;

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
        self.make_certificate(dir.path())?;
        let port = free_port()?;
        std::fs::write(dir.path().join("nginx.conf"), configuration(dir.path(), port))?;
        let mut command = Command::new("nginx");
        command.arg("-e").arg(dir.path().join("error.log")).arg("-c");
        let child = spawn(command.arg(dir.path().join("nginx.conf")), &dir)?;
        let mut server = Server::new("nginx", child, dir);
        let ca = server.path("ca.pem").to_string_lossy().into_owned();
        let base = format!("https://127.0.0.1:{port}");
        server.access = ["--base", &base, "--ca", &ca].map(str::to_owned).to_vec();
        let path = lengths.first().map(|length| format!("/{length}")).unwrap_or_default();
        self.wait_until_ok(&mut server, &path, READY_TIMEOUT)?;
        server.find_helpers()?;
        Ok(server)
    }

    /// Makes a certificate of the kind that our own server has.
    pub(crate) fn make_certificate(&self, dir: &std::path::Path) -> Result<()> {
        let dir = dir.to_string_lossy();
        self.run_load(&["certificate", "--dir", &dir].map(str::to_owned))?;
        Ok(())
    }
}

fn configuration(dir: &std::path::Path, port: u16) -> String {
    let dir = dir.display();
    // As root, the worker would become another user, who may not read our directory.
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
  open_file_cache max=100;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {dir}/ca.pem;
    ssl_certificate_key {dir}/key.pem;
    ssl_protocols TLSv1.3;
    root {dir}/files;
  }}
}}
"
    )
}
