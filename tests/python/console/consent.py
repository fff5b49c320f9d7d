"""Logins of the command line: the pages that ask the person, and where the browser goes then."""

import base64
import hashlib
import http.server
import json
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request

from harness import run
from playwright.sync_api import expect

VERIFIER = "verifier-abcdefghijklmnopqrstuvwxyz-0123456789"
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
STATE = "state-0123456789"


class Terminal:
    """The port of a command line. It keeps the queries of the requests to it."""

    def __init__(self, bench):
        queries = self.queries = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                address = urllib.parse.urlparse(self.path)
                if address.path == "/callback":
                    queries.append(dict(urllib.parse.parse_qsl(address.query)))
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(b"<!doctype html><title>terminal</title><h1>terminal</h1>")

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.origin = f"http://127.0.0.1:{server.server_address[1]}"
        bench.allowed.append(self.origin + "/")

    def address(self, bench):
        query = {
            "response_type": "code", "client_id": "postern-cli", "redirect_uri": self.origin + "/callback",
            "state": STATE, "code_challenge": CHALLENGE, "code_challenge_method": "S256", "host": "laptop",
        }
        return f"{bench.origin}/auth/authorize?{urllib.parse.urlencode(query)}"


def token(bench, fields):
    """The answer to a form."""
    path = fields.pop("path", "/auth/token")
    form = urllib.parse.urlencode({"client_id": "postern-cli", "code_verifier": VERIFIER, **fields}).encode()
    context = ssl.create_default_context(cadata=bench.config["authority"])
    request = urllib.request.Request(bench.origin + path, form)
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return json.loads(error.read())


def whoami(bench, key):
    me = bench.ok("GET", "/kubernetes/management/apis/management.platform.sh/v1/selves/me", key=key)
    return me["status"]["user"]["name"]


def a_person_allows_a_login_after_the_own_login(bench):
    terminal, key = Terminal(bench), bench.user("ada")
    page = bench.context.new_page()
    page.goto(terminal.address(bench))
    # Without a session, the login comes first, and returns to the question.
    bench.until_login(page)
    page.locator("input[type=password]").fill(key)
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_role("heading", name="Log in on the command line")).to_be_visible()
    expect(page.get_by_text("laptop", exact=True)).to_be_visible()
    expect(page.locator("dd").first).to_have_text("ada")
    bench.axe(page, "the question")
    page.get_by_role("button", name="Allow").click()
    expect(page.get_by_role("heading", name="terminal")).to_be_visible()
    assert [query["state"] for query in terminal.queries] == [STATE], terminal.queries
    code = terminal.queries[0]["code"]
    given = token(bench, {
        "grant_type": "authorization_code", "code": code, "redirect_uri": terminal.origin + "/callback"})
    assert whoami(bench, given["access_token"]) == "ada", given


def a_person_denies_a_login(bench):
    terminal = Terminal(bench)
    page = bench.logged_in(bench.user("bob"))
    page.goto(terminal.address(bench))
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_role("heading", name="terminal")).to_be_visible()
    assert terminal.queries == [{"error": "access_denied", "state": STATE}], terminal.queries


def a_page_with_another_address_leads_nowhere(bench):
    page = bench.logged_in(bench.user("eve"))
    query = {"redirect_uri": "https://evil.example/callback", "state": STATE, "code_challenge": CHALLENGE}
    bench.go(page, "/authorize?" + urllib.parse.urlencode(query))
    expect(page.get_by_text("redirect_uri must be")).to_be_visible()
    expect(page.get_by_role("button", name="Allow")).to_have_count(0)


def the_characters_of_the_terminal_are_typed(bench):
    begun = token(bench, {
        "path": "/auth/device", "code_challenge": CHALLENGE, "code_challenge_method": "S256", "host": "build-7"})
    page = bench.logged_in(bench.user("tim"))
    page.goto(begun["verification_uri_complete"].replace(
        urllib.parse.urlsplit(begun["verification_uri"]).netloc, bench.host))
    field = page.get_by_label("The characters that the terminal shows")
    field.fill("BBBB-BBBB")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("these are not the characters")).to_be_visible()
    bench.axe(page, "the characters")
    field.fill(begun["user_code"].lower())
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("build-7", exact=True)).to_be_visible()
    page.get_by_role("button", name="Allow").click()
    expect(page.get_by_text("Go back to the terminal")).to_be_visible()
    given = token(bench, {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": begun["device_code"]})
    assert whoami(bench, given["access_token"]) == "tim", given


run(
    a_person_allows_a_login_after_the_own_login,
    a_person_denies_a_login,
    a_page_with_another_address_leads_nowhere,
    the_characters_of_the_terminal_are_typed,
)
