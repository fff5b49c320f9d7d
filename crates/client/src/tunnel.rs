//! A tunnel through an HTTP proxy: CONNECT (RFC 9110 section 9.3.6).

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::proxy::{Proxy, authority};
use crate::server_url::ServerUrl;

/// The longest head of a proxy's answer.
const HEAD_MAX_BYTES: usize = 16 * 1024;

/// Asks the proxy at the other end of a connection for a tunnel to the server.
pub(crate) async fn open(
    stream: &mut TcpStream,
    proxy: &Proxy,
    server: &ServerUrl,
) -> Result<(), Error> {
    // The port is always written: a proxy knows no default one.
    let target = authority(server.host(), server.port());
    let mut request = Zeroizing::new(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"));
    if let Some(authorization) = proxy.authorization() {
        request.push_str("Proxy-Authorization: ");
        request.push_str(authorization.expose());
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    let refused = |reason: String| Error::Proxy { proxy: proxy.authority(), target, reason };
    if let Err(error) = stream.write_all(request.as_bytes()).await {
        return Err(refused(error.to_string()));
    }
    let head = match read_head(stream).await {
        Ok(head) => head,
        Err(reason) => return Err(refused(reason)),
    };
    match status_of(&head) {
        Some((200..=299, _)) => Ok(()),
        Some((code, reason)) => Err(refused(format!("{code} {reason}").trim_end().to_owned())),
        None => Err(refused("the answer is not HTTP".to_owned())),
    }
}

/// Reads up to the empty line. The server speaks after the client, so nothing may follow it.
async fn read_head(stream: &mut TcpStream) -> Result<Vec<u8>, String> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let length = stream.read(&mut buffer).await.map_err(|error| error.to_string())?;
        if length == 0 {
            return Err("the proxy closed the connection".to_owned());
        }
        head.extend_from_slice(&buffer[..length]);
        let end = head.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|at| at + 4);
        match end {
            Some(end) if end == head.len() => return Ok(head),
            // The body of a refusal is of no interest.
            Some(end) if !matches!(status_of(&head), Some((200..=299, _))) => {
                head.truncate(end);
                return Ok(head);
            }
            Some(_) => return Err("the proxy sent more than its answer".to_owned()),
            None if head.len() > HEAD_MAX_BYTES => {
                return Err(format!("the answer has more than {HEAD_MAX_BYTES} bytes"));
            }
            None => {}
        }
    }
}

/// The status code of an answer, and its reason.
fn status_of(head: &[u8]) -> Option<(u16, String)> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let (version, rest) = line.split_once(' ')?;
    let (code, reason) = rest.split_once(' ').unwrap_or((rest, ""));
    let code = code.parse().ok().filter(|code| (100..=599).contains(code))?;
    version.starts_with("HTTP/1.").then(|| (code, reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// The outcome for a proxy that gives this response, and the request that it got.
    async fn ask(proxy: &str, server: &str, answer: &[u8]) -> (Result<(), Error>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (proxy, server) = (Proxy::parse(proxy).unwrap(), ServerUrl::parse(server).unwrap());
        let asked = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            open(&mut stream, &proxy, &server).await
        };
        let answered = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            // In small parts, as a network may deliver it. After an error the client reads nothing
            // further.
            for part in answer.chunks(7) {
                if stream.write_all(part).await.is_err() {
                    break;
                }
            }
            String::from_utf8(head).unwrap()
        };
        tokio::join!(asked, answered)
    }

    #[tokio::test]
    async fn the_proxy_is_asked_for_a_tunnel_to_the_server() {
        let ok = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n";
        let (opened, head) = ask("http://ada:hush@p", "https://h.test", ok).await;
        opened.unwrap();
        let wanted = "CONNECT h.test:443 HTTP/1.1\r\nHost: h.test:443\r\n\
                      Proxy-Authorization: Basic YWRhOmh1c2g=\r\n\r\n";
        assert_eq!(head, wanted);
        let (opened, head) =
            ask("p:1", "https://[2001:db8::1]:8443", b"HTTP/1.0 200\r\n\r\n").await;
        opened.unwrap();
        let target = "[2001:db8::1]:8443";
        assert_eq!(head, format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
    }

    #[tokio::test]
    async fn an_answer_that_opens_no_tunnel_is_an_error() {
        let endless =
            [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'x'; HEAD_MAX_BYTES + 2048]].concat();
        for (answer, wanted) in [
            (
                &b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"[..],
                "407 Proxy Authentication",
            ),
            (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 2\r\n\r\nno", "502 Bad Gateway"),
            (b"HTTP/1.1 301 Moved\r\n\r\n", "301 Moved"),
            (b"HTTP/1.1 200 OK\r\n", "closed the connection"),
            (b"", "closed the connection"),
            (b"SSH-2.0-x\r\n\r\n", "not HTTP"),
            (b"HTTP/2 200\r\n\r\n", "not HTTP"),
            (&endless, "has more than"),
        ] {
            let (opened, _) = ask("http://ada:hush@p", "https://h.test", answer).await;
            let error = opened.unwrap_err();
            assert!(matches!(error, Error::Proxy { .. }), "{error:?}");
            let said = format!("{error} {error:?}");
            assert!(
                said.contains(wanted) && said.contains("p:80") && said.contains("h.test:443"),
                "{said}"
            );
            assert!(!said.contains("hush"), "{said}");
        }
    }
}
