"""The pages of identity providers, as a person uses them. The configuration names the provider (tests/src/nanoidp.rs)."""

from playwright.sync_api import expect

# Where the pages of nanoidp have their styles and scripts. These requests go nowhere.
STYLES_OF_NANOIDP = "https://cdn.jsdelivr.net/"


class Provider:
    """The provider of a bench."""

    def __init__(self, bench):
        self.bench = bench
        self.issuer = bench.config["issuer"]
        bench.allowed += [self.issuer + "/", STYLES_OF_NANOIDP]
        bench.context.on("request", self._requested)

    def _requested(self, request):
        if request.url.startswith(STYLES_OF_NANOIDP) and not request.frame.url.startswith(self.issuer + "/"):
            self.bench.foreign.append(f"{request.frame.url} asks for {request.url}")

    def expect_login(self, page):
        """Waits for the login page of the provider."""
        expect(page.get_by_role("button", name="Authorize")).to_be_visible()
        assert page.url.startswith(self.issuer + "/"), page.url

    def log_in(self, page, name):
        """Logs in at the provider, which sends the browser back."""
        self.expect_login(page)
        page.get_by_label("Username").fill(name)
        page.get_by_label("Password").fill(self.bench.config["password"])
        page.get_by_role("button", name="Authorize").click()
