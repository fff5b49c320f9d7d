"""A tab whose session ends, and what it must do then: for the checks of several files."""

from harness import API


def begun(bench, key):
    """A page at a place that must be kept, and the cookie of its session."""
    context = bench.new_context()
    page = bench.logged_in(key, context)
    bench.open(page, "/secrets?q=kept")
    [cookie] = [one for one in context.cookies() if one["name"] == "__Host-postern"]
    return page, f"__Host-postern={cookie['value']}"


def is_over(bench, page, cookie, key):
    """The tab shows the login, the cookie is nothing, and a new login comes back to the same place."""
    bench.until_login(page)
    headers = {"cookie": cookie, "x-postern-console": "1"}
    assert bench.call("GET", f"{API}/selves/me", key=False, headers=headers).status == 401
    page.locator("input[type=password]").fill(key)
    page.keyboard.press("Enter")
    bench.until_in(page)
    assert page.url == bench.origin + "/ui/secrets?q=kept", page.url
    page.context.close()


def log_out(page):
    button = page.get_by_role("button", name="Log out")
    if not button.is_visible():
        page.get_by_role("button", name="Account").click()
    button.click()
