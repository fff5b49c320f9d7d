"""Requests of other pages with the cookie of a session: none of them is authenticated."""

import http.server
import ssl
import threading

from harness import API, run

# What a page of another origin can send without a preflight, and what it tries with one. `path` is that of a secret that
# does not exist: an authenticated request would be 404, or 201 for a create.
ATTACKS = {
    "image": "(path) => new Promise((done) => { const one = new Image(); one.onload = one.onerror = done; one.src = path; })",
    "style": "(path) => new Promise((done) => { const one = document.createElement('link'); one.rel = 'stylesheet'; one.onload = one.onerror = done; one.href = path; document.head.append(one); })",
    "script": "(path) => new Promise((done) => { const one = document.createElement('script'); one.onload = one.onerror = done; one.src = path; document.head.append(one); })",
    "iframe": "(path) => new Promise((done) => { const one = document.createElement('iframe'); one.onload = one.onerror = done; one.src = path; document.body.append(one); })",
    "form-get": "(path) => new Promise((done) => { document.body.insertAdjacentHTML('beforeend', `<iframe name=f></iframe><form target=f action=\"${path}\"></form>`); document.querySelector('iframe[name=f]').onload = done; document.forms[0].submit(); })",
    "form-post": "(path) => new Promise((done) => { document.body.insertAdjacentHTML('beforeend', `<iframe name=g></iframe><form target=g method=post enctype=text/plain action=\"${path}\"><input name='{\"a' value='\":1}'></form>`); document.querySelector('iframe[name=g]').onload = done; document.forms[document.forms.length - 1].submit(); })",
    "fetch-no-cors": "(path) => fetch(path, { mode: 'no-cors', credentials: 'include' }).catch(() => {})",
    "fetch-post-no-cors": "(path) => fetch(path, { mode: 'no-cors', credentials: 'include', method: 'POST', body: '{}' }).catch(() => {})",
    "fetch-cors": "(path) => fetch(path, { credentials: 'include' }).catch(() => {})",
    "fetch-with-header": "(path) => fetch(path, { credentials: 'include', headers: { 'x-postern-console': '1' } }).catch(() => {})",
    "beacon": "(path) => navigator.sendBeacon(path, '{}')",
    "websocket": "(path) => new Promise((done) => { const one = new WebSocket(path.replace('https:', 'wss:')); one.onopen = () => { window.opened = true; done(); }; one.onerror = done; })",
    "window": "(path) => { window.open(path); }",
}


class Blank(http.server.BaseHTTPRequestHandler):
    """Every path is an empty page."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>other</title><body></body>")

    def log_message(self, *_):
        pass


def other_server(bench):
    """A server on another port. Returns the port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blank)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(bench.config["other_tls"])
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def marked(bench, marker):
    """The audit records of requests with a marker in their path."""
    return [one for one in bench.records() if marker in one["requestURI"]]


SECRETS = f"{API}/namespaces/platform/sharedsecrets"

# The attacks that send a POST, for which a secret has no path.
POSTS = ("form-post", "fetch-post-no-cors", "beacon")


def secret_path(marker):
    return f"{SECRETS}/{marker}"


def pages_of_other_origins_are_never_authenticated(bench):
    port = other_server(bench)
    origins = {"port": f"https://127.0.0.1:{port}", "site": f"https://localhost:{port}"}
    bench.allowed += [origin + "/" for origin in origins.values()]
    console = bench.logged_in()
    # The control: the same request of the console is authenticated.
    status = console.evaluate(
        "(path) => fetch(path, { headers: { 'x-postern-console': '1' } }).then((one) => one.status)",
        secret_path("control"))
    assert status == 404, status
    records = bench.until("the record", lambda: marked(bench, "control"))
    assert [one["responseStatus"]["code"] for one in records] == [404]
    arrived = set()
    for where, origin in origins.items():
        for what, attack in ATTACKS.items():
            page = bench.context.new_page()
            page.goto(origin + "/")
            marker = f"marker-{where}-{what}"
            path = f"{SECRETS}?fieldManager={marker}" if what in POSTS else secret_path(marker)
            page.evaluate(f"(path) => {{ ({attack})(path); }}", bench.origin + path)
            if what not in ("fetch-with-header",):
                # Chromium sends it, and the server says no.
                bench.until(f"the request {marker}", lambda: marked(bench, marker))
            assert not page.evaluate("window.opened"), marker
            page.close()
            for record in marked(bench, marker):
                arrived.add(marker)
                assert record["responseStatus"]["code"] == 401, record
    assert len(arrived) >= 2 * (len(ATTACKS) - 1), arrived
    # What the browser blocks in other pages, it reports there.
    bench.take_violations()


def the_console_itself_is_authenticated_by_its_header_alone(bench):
    page = bench.logged_in()
    fetched = "([path, headers]) => fetch(path, { headers }).then((one) => one.status)"
    path = secret_path("own")
    assert page.evaluate(fetched, [path, {}]) == 401
    assert page.evaluate(fetched, [path, {"x-postern-console": "0"}]) == 401
    assert page.evaluate(fetched, [path, {"x-postern-console": "1"}]) == 404
    # A navigation has the cookie, and no header: also to a cluster, whose page would be on this origin.
    other = bench.context.new_page()
    for below in ["/kubernetes/cluster/none/", "/kubernetes/cluster/none/api/v1/pods", secret_path("typed")]:
        response = other.goto(bench.origin + below)
        assert response.status == 401, (below, response.status)
        if "/cluster/" in below:
            assert response.headers["content-security-policy"] == "sandbox", response.headers
    # The policy of the console names its own scripts, and a cluster's path is on its origin. A service worker would see all
    # requests of the console.
    registered = page.evaluate(
        """(path) => navigator.serviceWorker.register(path, { scope: '/ui/' }).then(() => 'registered', (error) => error.name)""",
        "/kubernetes/cluster/none/worker.js")
    assert registered != "registered", registered
    framed = page.evaluate(
        """(path) => new Promise((done) => { const one = document.createElement('iframe'); one.src = path;
             one.onload = () => { let seen; try { seen = one.contentDocument?.body?.textContent ?? ''; } catch { seen = ''; } done(seen); };
             document.body.append(one); setTimeout(() => done('blocked'), 1000); })""",
        "/kubernetes/cluster/none/")
    assert "kind" not in framed, framed
    assert bench.take_violations(), "the frame and the worker are reported"


def a_socket_of_the_console_is_not_authenticated_by_the_cookie(bench):
    page = bench.logged_in()
    opened = page.evaluate(
        """(url) => new Promise((done) => { const one = new WebSocket(url);
             one.onopen = () => done(true); one.onerror = () => done(false); })""",
        f"wss://{bench.host}{API}/namespaces/platform/sharedsecrets?watch=true")
    assert opened is False


def no_page_can_frame_the_console(bench):
    port = other_server(bench)
    origin = f"https://127.0.0.1:{port}"
    bench.allowed.append(origin + "/")
    bench.logged_in()
    page = bench.context.new_page()
    page.goto(origin + "/")
    page.evaluate("(url) => { const one = document.createElement('iframe'); one.src = url; document.body.append(one); }",
                  bench.origin + "/ui/secrets")
    page.wait_for_load_state("networkidle")
    assert all(not frame.url.startswith(bench.origin) for frame in page.frames), [frame.url for frame in page.frames]
    bench.take_violations()


run(
    pages_of_other_origins_are_never_authenticated,
    the_console_itself_is_authenticated_by_its_header_alone,
    a_socket_of_the_console_is_not_authenticated_by_the_cookie,
    no_page_can_frame_the_console,
)
