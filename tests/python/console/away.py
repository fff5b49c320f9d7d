"""A server that is away: the page of the URL, the text, and what comes back without a click."""

from playwright.sync_api import expect

from harness import API, run
from open_list import Relay


def behind_a_relay(bench):
    """A page whose server can be away."""
    relay = Relay(bench.origin)
    bench.allowed.append(relay.origin + "/")
    page = bench.new_context().new_page()
    bench.use_link(page, bench.link().replace(bench.origin, relay.origin))
    return relay, page


def click(page, name):
    page.get_by_role("navigation", name="Main").get_by_role("link", name=name, exact=True).click()


def back(relay, bench, page):
    """The server is back, and the person comes back to the page."""
    relay.to(bench.origin)
    page.evaluate("() => dispatchEvent(new Event('online'))")


def a_page_waits_for_the_server(bench):
    bench.secret("db", {"key": "value"})
    relay, page = behind_a_relay(bench)
    expect(page.get_by_text("My shared secrets")).to_be_visible()

    # The code of the page is not loaded yet. The overview must not stay below the menu entry of another page.
    relay.cut()
    click(page, "Sessions")
    expect(page.get_by_text("The server cannot be reached. This opens as soon as it is back.")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
    expect(page.get_by_text("My shared secrets")).to_have_count(0)
    expect(page.get_by_text("newer console")).to_have_count(0)
    back(relay, bench, page)
    expect(page.get_by_role("table")).to_contain_text("this session")
    expect(page.get_by_text("cannot be reached")).to_have_count(0)

    # The code is loaded, and the rows are not.
    click(page, "Shared secrets")
    expect(page.locator("[data-row]")).to_have_count(1)
    relay.cut()
    click(page, "Teams")
    expect(page.get_by_role("heading", name="The server cannot be reached")).to_be_visible()
    expect(page.get_by_text("Trying again in")).to_be_visible()
    bench.ok("POST", f"{API}/teams", {"metadata": {"name": "shop"}, "spec": {}})
    back(relay, bench, page)
    expect(page.get_by_role("link", name="shop")).to_be_visible()

    # An object, without a sign that the server is back: the page tries by itself.
    relay.cut()
    page.get_by_role("link", name="shop").click()
    expect(page.get_by_text("cannot be reached").first).to_be_visible()
    relay.to(bench.origin)
    expect(page.get_by_role("heading", name="Members", exact=True)).to_be_visible()
    relay.cut()
    page.context.close()


def a_newer_console_is_another_thing(bench):
    """The server answers, and does not have the file."""
    page = bench.logged_in()
    page.route("**/assets/pages-*.js", lambda route: route.fulfill(status=404, body="gone"))
    click(page, "Sessions")
    expect(page.get_by_text("The server has a newer console.")).to_be_visible()
    expect(page.get_by_role("button", name="Reload")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
    click(page, "Overview")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Hello")
    expect(page.get_by_text("newer console")).to_have_count(0)


run(a_page_waits_for_the_server, a_newer_console_is_another_thing)
