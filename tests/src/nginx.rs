//! nginx in front of Postern servers: it ends TLS with its own certificate, and speaks TLS with the
//! servers behind it, as an ingress does. Each request goes to the next server.

use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};

use crate::tls_proxy::{TlsProxy, inherited_listener};
use crate::{Home, Kubeconfig, SelfSigned};

/// nginx. Dropping it ends it.
#[derive(Debug)]
pub struct Nginx {
    proxy: TlsProxy,
}

impl Nginx {
    /// Starts it in front of the server that a kubeconfig leads to, with its files in a directory of the home.
    /// A test that needs it fails where it is not installed.
    pub async fn start(home: &Home, name: &str, behind: &Kubeconfig) -> Self {
        Self::balance(home, name, &[behind]).await
    }

    /// Starts it in front of several servers with one certificate authority.
    pub async fn balance(home: &Home, name: &str, servers: &[&Kubeconfig]) -> Self {
        let behind = *servers.first().expect("at least one server");
        let directory = home.path().join(format!("nginx-{name}"));
        std::fs::create_dir_all(&directory).unwrap();
        SelfSigned::make().write(&directory);
        let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
        write("behind.pem", std::str::from_utf8(&behind.authority).unwrap());
        let (listener, port) = inherited_listener();
        let addresses: Vec<&str> =
            servers.iter().map(|server| server.authority_of_server()).collect();
        write("nginx.conf", &configuration(&directory, port, &addresses));
        let child = Command::new("nginx")
            .arg("-e")
            .arg(directory.join("error.log"))
            .arg("-c")
            .arg(directory.join("nginx.conf"))
            .env("NGINX", format!("{};", listener.as_raw_fd()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("nginx can be started: `cargo xtask fetch --all` installs it where it may");
        drop(listener);
        let mut nginx = Self { proxy: TlsProxy::new(child, directory, "error.log", port) };
        nginx.proxy.until_it_answers("nginx", behind).await;
        nginx
    }

    /// The kubeconfig that reaches the servers behind it through nginx.
    #[must_use]
    pub fn kubeconfig(&self, behind: &Kubeconfig) -> Kubeconfig {
        self.proxy.kubeconfig(behind)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM, upon which it ends its worker. Fails if it has exited already, which is fine.
        let id = rustix::process::Pid::from_child(&self.proxy.child);
        if rustix::process::kill_process(id, rustix::process::Signal::TERM).is_ok() {
            drop(self.proxy.child.wait());
        }
        if std::thread::panicking() {
            eprintln!("the log of nginx:\n{}", self.proxy.logged());
        }
    }
}

/// The configuration of nginx. Only three settings differ from nginx's defaults: bodies have any
/// length, streams are not buffered, and upgrades are allowed.
fn configuration(directory: &std::path::Path, port: u16, behind: &[&str]) -> String {
    let behind: Vec<String> = behind.iter().map(|address| format!("server {address};")).collect();
    let behind = behind.join(" ");
    let dir = directory.display();
    // As root, the worker would change to another user, which cannot read this directory.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    format!(
        "daemon off;
{user}
worker_processes 1;
pid {dir}/pid;
error_log {dir}/error.log warn;
events {{ worker_connections 512; }}
http {{
  access_log off;
  client_body_temp_path {dir};
  proxy_temp_path {dir};
  fastcgi_temp_path {dir};
  uwsgi_temp_path {dir};
  scgi_temp_path {dir};
  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
  upstream postern {{ {behind} }}
  server {{
    listen 127.0.0.1:{port} ssl http2;
    ssl_certificate {dir}/ca.pem;
    ssl_certificate_key {dir}/key.pem;
    client_max_body_size 0;
    location / {{
      proxy_pass https://postern;
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 600;
      proxy_ssl_trusted_certificate {dir}/behind.pem;
      proxy_ssl_verify on;
      proxy_ssl_name localhost;
    }}
  }}
}}
"
    )
}
