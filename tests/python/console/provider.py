"""The pages of identity providers, as a person uses them. The configuration names the provider, nanoidp (tests/src/nanoidp.rs)
or oidc-provider (tests/src/oidc_provider.rs).
"""

import json
import ssl
import urllib.request

from playwright.sync_api import expect

# Where the pages of the providers have their styles. These requests go nowhere.
STYLES = ("https://cdn.jsdelivr.net/", "https://fonts.googleapis.com/")


class Provider:
    """The provider of a bench."""

    def __init__(self, bench):
        self.bench = bench
        self.name, self.issuer = bench.config["provider"], bench.config["issuer"]
        self.logouts = 0
        bench.allowed += [self.issuer + "/", *STYLES]
        bench.context.on("request", self._requested)

    def _requested(self, request):
        path = "/logout?" if self.name == "nanoidp" else "/session/end?"
        self.logouts += request.url.startswith(self.issuer + path)
        if request.url.startswith(STYLES) and not request.frame.url.startswith(self.issuer + "/"):
            self.bench.foreign.append(f"{request.frame.url} asks for {request.url}")

    def expect_login(self, page):
        """Waits for the login page of the provider."""
        name = "Authorize" if self.name == "nanoidp" else "Sign-in"
        expect(page.get_by_role("button", name=name)).to_be_visible()
        assert page.url.startswith(self.issuer + "/"), page.url

    def log_in(self, page, user):
        """Logs in at the provider, which sends the browser back."""
        self.expect_login(page)
        password = self.bench.config["password"]
        if self.name == "nanoidp":
            page.get_by_label("Username").fill(user)
            page.get_by_label("Password").fill(password)
            page.get_by_role("button", name="Authorize").click()
            return
        page.get_by_placeholder("Enter any login").fill(user)
        page.get_by_placeholder("and password").fill(password)
        page.get_by_role("button", name="Sign-in").click()
        # The provider asks once for a session.
        consent = page.get_by_role("button", name="Continue")
        self.bench.until("the end of the login", lambda: self.is_left(page) or consent.is_visible())
        if not self.is_left(page):
            consent.click()

    def confirm_logout(self, page):
        """Answers the question that oidc-provider asks. nanoidp sends the browser back at once."""
        if self.name != "nanoidp":
            page.get_by_role("button", name="Yes, sign me out").click()
        self.bench.until("the logout at the provider", lambda: self.logouts == 1)

    def is_left(self, page):
        return not page.url.startswith(self.issuer + "/")

    def replace_keys(self):
        """Lets nanoidp sign with a new key, which no server knows yet."""
        if self.name == "nanoidp":
            self._post("/api/keys/rotate", b"")

    def change(self, user, groups=None):
        """Sets the groups of a user. Without groups, the provider removes the user."""
        self._post("/people", json.dumps({"user": user, "groups": groups}).encode())

    def _post(self, path, body):
        context = ssl.create_default_context(cadata=self.bench.config["issuer_authority"])
        urllib.request.urlopen(self.issuer + path, body, 30, context=context).close()
