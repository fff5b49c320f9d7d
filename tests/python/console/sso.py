"""Logins at an identity provider, which begin and end in the console."""

import json

from harness import API, run
from open_tab import log_out
from playwright.sync_api import expect
from provider import Provider

CONNECTOR = f"{API}/connectors/corp"


def button(page):
    return page.get_by_role("link", name="Continue with Corporate login")


def begin(bench, page, path):
    """Opens a page without a session, and goes to the provider."""
    page.goto(bench.origin + "/ui" + path)
    bench.until_login(page)
    button(page).click()


def user_of(page):
    return page.get_by_role("button", name="Account").locator(".name")


def a_login_returns_to_the_page_where_it_began(bench):
    provider = Provider(bench)
    page = bench.context.new_page()
    begin(bench, page, "/secrets?q=kept")
    provider.log_in(page, "ada")
    bench.until_in(page)
    assert page.url == bench.origin + "/ui/secrets?q=kept", page.url
    assert len(bench.context.pages) == 1, "the login stays in its tab"
    expect(user_of(page)).to_contain_text("ada")
    # The session in the list, and the login that made it.
    bench.go(page, "/sessions")
    row = page.get_by_role("row").filter(has_text="This session")
    expect(row.get_by_role("cell").first).to_contain_text("ada")
    key = page.evaluate("fetch('/auth/session', { headers: { 'x-postern-console': '1' } }).then((one) => one.json())")
    bench.go(page, "/keys/" + key["status"]["accessKey"])
    login = page.locator("section", has=page.get_by_role("heading", name="Login", exact=True))
    for text in ["corp", "ada", "ada@example.com", "developers"]:
        expect(login.get_by_text(text, exact=True).first).to_be_visible()
    bench.axe(page, "the key of a login")
    expect(page.get_by_text("not verified")).to_have_count(0)
    page.get_by_role("button", name="Account").click()
    expect(page.locator("#account-menu").get_by_text("--sso-groups-max-age")).to_be_visible()
    bench.axe(page, "the menu with the logout")
    page.keyboard.press("Escape")
    # What the provider gave is in no page and in no storage.
    [cookie] = [one for one in bench.context.cookies(bench.origin) if one["name"].startswith("__Host-postern")]
    stored = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    assert cookie["name"] == "__Host-postern" and cookie["value"] not in stored, (cookie, stored)
    assert "eyJ" not in stored + page.content(), "no token is in the page"
    # A logout ends the session at the provider as well: the next login is asked for its user.
    log_out(page)
    provider.confirm_logout(page)
    bench.until_login(page)
    assert page.url.startswith(bench.origin + "/ui/"), page.url
    assert not [one for one in bench.context.cookies(bench.origin) if one["name"].startswith("__Host-postern")]
    button(page).click()
    provider.expect_login(page)


def three_tabs_log_in_at_once(bench):
    provider = Provider(bench)
    tabs = [(bench.context.new_page(), path) for path in ["/secrets", "/keys", "/projects?q=kept"]]
    for page, path in tabs:
        begin(bench, page, path)
    for page, _ in tabs:
        provider.expect_login(page)
    provider.replace_keys()
    for page, path in reversed(tabs):
        provider.log_in(page, "bob")
        bench.until_in(page)
        assert page.url == f"{bench.origin}/ui{path}", page.url
    for page, _ in tabs:
        expect(user_of(page)).to_contain_text("bob")
    names = [one["name"] for one in bench.context.cookies(bench.origin)]
    assert [name for name in names if name.startswith("__Host-postern")] == ["__Host-postern"], names


def a_trial_login_shows_what_the_provider_sends(bench):
    provider, page = Provider(bench), bench.context.new_page()
    tested = bench.ok("GET", CONNECTOR + "/test")
    assert all(check["passed"] for check in tested["checks"]), tested
    assert tested["logoutRedirectURI"] == bench.origin + "/ui/", tested
    page.goto(tested["trialURL"])
    provider.log_in(page, "tim")
    expect(page.locator("body")).to_contain_text("userInfo")
    shown = json.loads(page.locator("body").inner_text())
    assert shown["trial"]["nameOfNewUser"] == "tim" and shown["trial"]["hasRefreshToken"], shown
    assert "groups" not in shown["claims"] and shown["userInfo"]["groups"], shown
    assert bench.call("GET", f"{API}/users/tim").status == 404, "a trial makes no user"


def a_disabled_connector_has_no_button(bench):
    page = bench.context.new_page()
    page.goto(bench.origin + "/ui/")
    bench.until_login(page)
    expect(button(page)).to_be_visible()
    bench.axe(page, "login with a provider")
    page.emulate_media(color_scheme="dark")
    bench.axe(page, "login with a provider, dark")
    bench.ok("PATCH", CONNECTOR, {"spec": {"disabled": True}})

    def is_gone():
        methods = bench.call("GET", "/auth/methods", key=False).json()["methods"]
        return [method["type"] for method in methods] == ["AccessKey"]

    bench.until("the list without the connector", is_gone)
    page.reload()
    bench.until_login(page)
    expect(button(page)).to_have_count(0)


run(
    a_login_returns_to_the_page_where_it_began,
    three_tabs_log_in_at_once,
    a_trial_login_shows_what_the_provider_sends,
    a_disabled_connector_has_no_button,
)
