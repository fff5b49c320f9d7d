"""The web console in a real Chromium: what every group of checks shares.

A group is a file with functions that `run` calls. Each gets a `Bench`: the server, its API, and a browser whose policy
reports and requests are counted. All checks of a file share the server, which serves 30 requests for logins in a minute;
loading a page is one. The configuration is a line of JSON on the standard input (tests/src/browser.rs).
"""

import json
import ssl
import sys
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

API = "/kubernetes/management/apis/management.platform.sh/v1"
LEGACY = "/kubernetes/management/apis/storage.platform.sh/v1"

# Chromium sends nothing of its own: the tests count requests, and their machine may have no network.
QUIET = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]

# How long a page may take. No check depends on the speed of the machine.
DEADLINE_MS = 30_000

WATCH_POLICY = """
addEventListener('securitypolicyviolation', (event) => {
  postern_violation(`${event.effectiveDirective}: ${event.blockedURI} ${event.sample}`);
});
"""

AXE_OPTIONS = {"resultTypes": ["violations"]}


class Reply:
    """A response of the server to the test itself."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Bench:
    """A server, and a browser with one context."""

    def __init__(self, browser, config):
        self.browser = browser
        self.config = config
        self.set_origin(config["origin"])
        self.violations, self.foreign, self.errors = [], [], []
        # The origins of other pages that a check itself opens.
        self.allowed = []
        self.axe_source = Path(config["axe"]).read_text()
        self.context = self.new_context()

    def set_origin(self, origin):
        """Where the server is."""
        self.config["origin"] = self.origin = origin
        self.host = origin.removeprefix("https://")

    def new_context(self, **options):
        """A browser without cookies. What it blocks and requests is counted for the whole bench."""
        context = self.browser.new_context(ignore_https_errors=True, **options)
        context.set_default_timeout(DEADLINE_MS)
        context.expose_binding("postern_violation", lambda _, text: self.violations.append(text))
        context.add_init_script(WATCH_POLICY)
        context.on("request", self._requested)
        context.on("console", self._said)
        context.on("weberror", lambda error: self.errors.append(str(error.error)))
        return context

    def _requested(self, request):
        own = [self.origin + "/", "wss://" + self.host + "/", "data:", "blob:", "about:", *self.allowed]
        if not request.url.startswith(tuple(own)):
            self.foreign.append(request.url)

    def _said(self, message):
        # Workers have no page, so their reports are seen here alone.
        text = message.text
        if "Content Security Policy" in text or "TrustedHTML" in text or "TrustedScript" in text:
            self.violations.append(text)

    # The API, as the administrator or with another key.

    def call(self, method, path, body=None, key=None, headers=None):
        headers = dict(headers or {})
        if key is not False:
            headers["authorization"] = "Bearer " + (key or self.config["key"])
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            kind = "merge-patch+json" if method == "PATCH" else "json"
            headers["content-type"] = "application/" + kind
        request = urllib.request.Request(self.origin + path, data, headers, method=method)
        context = ssl.create_default_context(cadata=self.config["authority"])
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:
                return Reply(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            return Reply(error.code, error.headers, error.read())

    def ok(self, method, path, body=None, key=None):
        reply = self.call(method, path, body, key)
        assert reply.status < 300, f"{method} {path}: {reply.status} {reply.body.decode()}"
        return reply.json()

    def user(self, name):
        """A user with an access key. Returns the key's value."""
        self.ok("POST", f"{API}/users", {"metadata": {"name": name}, "spec": {}})
        return self.key(f"{name}-key", {"user": name})

    def key(self, name, spec):
        made = self.ok("POST", f"{API}/ownedaccesskeys", {"metadata": {"name": name}, "spec": spec})
        return made["spec"]["key"]

    def secret(self, name, data, namespace="platform", **metadata):
        import base64

        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        spec = {"displayName": metadata.pop("display_name", ""), "data": encoded}
        body = {"metadata": {"name": name, **metadata}, "spec": spec}
        return self.ok("POST", f"{API}/namespaces/{namespace}/sharedsecrets", body)

    def records(self):
        """The audit log, without a line that is being written."""
        lines = Path(self.config["audit_log"]).read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    # The browser.

    def link(self, key=None):
        """A login link for the owner of a key."""
        made = self.ok("POST", "/auth/code", key=key)
        return f"{self.origin}/ui/login#code={made['status']['code']}"

    def logged_in(self, key=None, context=None):
        """A page that is logged in by a link."""
        page = (context or self.context).new_page()
        self.use_link(page, self.link(key))
        return page

    def use_link(self, page, link):
        """Opens a login link, and says that it is the person's own."""
        page.goto(link)
        page.get_by_role("button", name="Log in with the link").click()
        self.until_in(page)

    def until_in(self, page):
        expect(page.get_by_role("navigation").first).to_be_visible()
        assert "code=" not in page.url, page.url

    def open(self, page, path):
        page.goto(self.origin + "/ui" + path)
        expect(page.get_by_role("heading", level=1).first).to_be_visible()

    def go(self, page, path):
        """Opens a path of the console as a click on a link does. Loading a page is limited as logins are."""
        page.evaluate(
            """(path) => { const one = document.createElement('a'); one.href = path; document.body.append(one);
                 one.click(); one.remove(); }""",
            "/ui" + path)
        assert page.url == self.origin + "/ui" + path, page.url

    def until_login(self, page):
        expect(page.locator("input[type=password]")).to_be_visible()

    def axe(self, page, what):
        """Checks the accessibility of a page as it is."""
        page.evaluate(self.axe_source + ";0")
        found = page.evaluate("(options) => axe.run(document, options)", AXE_OPTIONS)
        told = [f"{one['id']}: {node['html'][:200]}" for one in found["violations"] for node in one["nodes"]]
        assert not told, f"{what}: axe finds {told}"

    def take_violations(self):
        """The policy reports until now, which are then forgotten: for checks that provoke one."""
        taken, self.violations = self.violations, []
        return taken

    def until(self, what, condition):
        """Waits for a condition."""
        end = time.monotonic() + DEADLINE_MS / 1000
        while time.monotonic() < end:
            found = condition()
            if found:
                return found
            # The browser's events are handled here.
            pages = [page for context in self.browser.contexts for page in context.pages]
            pages[0].wait_for_timeout(50) if pages else time.sleep(0.05)
        raise AssertionError(f"waited in vain for {what}")

    def finish(self):
        self.context.close()
        assert not self.violations, f"policy reports: {self.violations}"
        assert not self.foreign, f"requests to other hosts: {self.foreign}"
        assert not self.errors, f"uncaught errors of pages: {self.errors}"


def restart_server():
    """Asks the test that runs the script for another process of the same server. Returns its origin."""
    print("restart", flush=True)
    return sys.stdin.readline().strip()


def run(*checks):
    """Runs each check with a browser context of its own. Prints each name, and exits with 1 if one fails."""
    config = json.loads(sys.stdin.readline())
    expect.set_options(timeout=DEADLINE_MS)
    failed = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=config["chromium"], args=QUIET)
        for check in checks:
            bench = Bench(browser, config)
            try:
                check(bench)
                bench.finish()
                print(f"passed: {check.__name__}", flush=True)
            except BaseException:
                failed += 1
                print(f"failed: {check.__name__}", file=sys.stderr)
                traceback.print_exc()
                for context in browser.contexts:
                    for number, page in enumerate(context.pages):
                        picture = Path(config["pictures"]) / f"{check.__name__}-{number}.png"
                        page.screenshot(path=picture)
                        print(f"{page.url}: {picture}", file=sys.stderr)
                    context.close()
        browser.close()
    sys.exit(1 if failed else 0)
